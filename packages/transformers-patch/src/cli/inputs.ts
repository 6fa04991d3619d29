import { MxattnError } from '@mxattn/core';
import { findRuntime, type ValueSignature } from '@mxattn/ort-op';
import type { Tensor } from 'onnxruntime-common';
import { readSafetensors } from './safetensors.js';

export interface InputOptions {
  /** A safetensors file with the model's inputs by name, optionally with `input.` before it. */
  readonly file?: string | undefined;
  /** Size of free axes. */
  readonly length: number;
}

/** Inputs to run a model with: from a file, or made up. */
export function modelFeeds(
  inputs: readonly ValueSignature[],
  { file, length }: InputOptions,
): Record<string, Tensor> {
  const stored = file === undefined ? undefined : readSafetensors(file);
  const entries = inputs.map((input): [string, Tensor] => {
    if (!stored) return [input.name, madeUp(input, length)];
    const found = stored.get(input.name) ?? stored.get(`input.${input.name}`);
    if (!found) {
      throw new MxattnError(`${file} has no tensor "${input.name}"; it has ${[...stored.keys()].join(', ')}`);
    }
    return [input.name, tensor(found.type, found.bytes, found.dims)];
  });
  return Object.fromEntries(entries);
}

function madeUp(input: ValueSignature, length: number): Tensor {
  const dims = input.dims.map((dim) => (typeof dim === 'number' ? dim : freeSize(dim, length)));
  const count = dims.reduce((product, size) => product * size, 1);
  const last = dims.at(-1) ?? 1;
  switch (input.type) {
    case 'float32':
      return tensor('float32', normal(count).buffer, dims);
    case 'int64':
    case 'int32': {
      const values = Array.from({ length: count }, (_, i) => integer(input.name, i, last));
      const data = input.type === 'int64' ? BigInt64Array.from(values, BigInt) : Int32Array.from(values);
      return tensor(input.type, data.buffer, dims);
    }
    case 'bool':
      return tensor('bool', new Uint8Array(count).fill(1).buffer, dims);
    default:
      throw new MxattnError(
        `no values can be made up for input "${input.name}" of type ${input.type}; give --inputs`,
      );
  }
}

/** A batch of one, no past, and everything else `length` long. */
function freeSize(name: string, length: number): number {
  if (/batch/i.test(name)) return 1;
  return /past/i.test(name) ? 0 : length;
}

function integer(name: string, index: number, last: number): number {
  if (/mask/i.test(name)) return 1;
  if (/position/i.test(name)) return index % last;
  if (/type/i.test(name)) return 0;
  // Token ids that small vocabularies have, too.
  return 1 + ((index * 37) % 61);
}

/** Reproducible standard normal numbers. */
export function normal(count: number, seed = 1): Float32Array {
  let state = seed >>> 0;
  const uniform = () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (state + 0.5) / 2 ** 32;
  };
  return Float32Array.from(
    { length: count },
    () => Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform()),
  );
}

const ARRAYS: Partial<Record<Tensor.Type, new (buffer: ArrayBuffer) => ArrayBufferView>> = {
  float64: Float64Array,
  float32: Float32Array,
  float16: Uint16Array,
  int64: BigInt64Array,
  int32: Int32Array,
  int16: Int16Array,
  int8: Int8Array,
  uint64: BigUint64Array,
  uint32: Uint32Array,
  uint16: Uint16Array,
  uint8: Uint8Array,
  bool: Uint8Array,
};

function tensor(type: Tensor.Type, bytes: ArrayBufferLike, dims: readonly number[]): Tensor {
  const data = new ARRAYS[type]!(bytes as ArrayBuffer);
  return new (findRuntime().ort.Tensor)(type as 'float32', data as Float32Array, dims);
}
