import { readFileSync } from 'node:fs';
import { MxattnError } from '@mxattn/core';
import type { Tensor } from 'onnxruntime-common';

/** A tensor of a safetensors file, with ONNX Runtime's name of its type. */
export interface StoredTensor {
  readonly type: Tensor.Type;
  readonly dims: readonly number[];
  /** A copy of the bytes of its elements. */
  readonly bytes: ArrayBuffer;
}

const TYPES: Readonly<Record<string, Tensor.Type>> = {
  F64: 'float64',
  F32: 'float32',
  F16: 'float16',
  I64: 'int64',
  I32: 'int32',
  I16: 'int16',
  I8: 'int8',
  U64: 'uint64',
  U32: 'uint32',
  U16: 'uint16',
  U8: 'uint8',
  BOOL: 'bool',
};

interface Entry {
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly data_offsets: readonly [number, number];
}

/**
 * Reads a safetensors file: 8 bytes with the length of a JSON header, the header, the data.
 *
 * @throws MxattnError naming the file, and the tensor where one is at fault.
 */
export function readSafetensors(path: string): Map<string, StoredTensor> {
  let file: Buffer;
  try {
    file = readFileSync(path);
  } catch {
    throw new MxattnError(`cannot read ${path}`);
  }
  const refuse = (why: string) => new MxattnError(`${path} is not a safetensors file: ${why}`);
  const headerLength = file.length < 8 ? Infinity : Number(file.readBigUInt64LE());
  const start = 8 + headerLength;
  if (!(start <= file.length)) throw refuse('it ends within its header');
  let header: Record<string, Entry>;
  try {
    header = JSON.parse(file.toString('utf8', 8, start)) as Record<string, Entry>;
  } catch {
    throw refuse('its header is not JSON');
  }
  const tensors = new Map<string, StoredTensor>();
  for (const [name, entry] of Object.entries(header)) {
    if (name === '__metadata__') continue;
    const type = TYPES[entry.dtype];
    if (!type)
      throw new MxattnError(`${path}: tensor "${name}" has type ${entry.dtype}, which is not supported`);
    const [from, to] = entry.data_offsets ?? [];
    if (!(from >= 0 && from <= to && start + to <= file.length)) {
      throw refuse(`tensor "${name}" lies outside the file`);
    }
    // Copied: elements must be aligned.
    const bytes = Uint8Array.from(file.subarray(start + from, start + to)).buffer;
    tensors.set(name, { type, dims: entry.shape, bytes });
  }
  return tensors;
}
