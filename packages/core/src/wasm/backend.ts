import type { Backend } from '../attention/backend.js';
import { additiveBias, broadcastStrides } from '../attention/bias.js';
import { visibleKeys } from '../attention/scores.js';
import type { AttentionSpec } from '../attention/spec.js';
import { type AttentionTensors, headStride, type ScoreTensor } from '../attention/tensors.js';
import { type Recipe, recipes } from '../precision/recipes.js';
import { isSupported, type Kernel, loadKernel, type WasmBuild } from './kernel.js';

/** TILE_KEYS and BLOCK_ROWS of packages/core/wasm/sizes.ts. */
const TILE_KEYS = 64;
const BLOCK_ROWS = 64;

/** What the kernel implements. */
/** What the kernel implements. */
export const wasmRecipes: readonly Recipe[] = [recipes.f32, recipes.mxfp6, recipes.mxfp4];

/** Options of {@link wasmBackend}. */
export interface WasmBackendOptions {
  /** Default: relaxed SIMD where the engine has a fast 8-bit dot product, else plain SIMD. */
  readonly build?: WasmBuild;
}

/**
 * The WebAssembly kernel as a backend: one thread, wherever there is WebAssembly SIMD. Core registers it under the name
 * `wasm`; with a build the name is that of the build, too, as in `wasm-simd`.
 */
export function wasmBackend({ build }: WasmBackendOptions = {}): Backend {
  return {
    name: build === undefined ? 'wasm' : `wasm-${build}`,
    priority: 5,
    supports(_spec, recipe) {
      if (!wasmRecipes.includes(recipe)) return `does not implement the recipe ${recipe.name}`;
      const needed = build ?? 'simd';
      return isSupported(needed) || `needs an engine with WebAssembly ${needed}`;
    },
    attention: async (tensors, spec, recipe) => run(await loadKernel(build), tensors, spec, recipe),
  };
}

/** Rows of one head and where they are in their tensor. */
interface Head {
  readonly data: Float32Array;
  readonly start: number;
  readonly stride: number;
  readonly size: number;
}

function headOf(
  data: Float32Array,
  spec: AttentionSpec,
  heads: number,
  length: number,
  size: number,
  batch: number,
  head: number,
): Head {
  return { data, size, ...headStride(spec.layout, heads, length, size, batch, head) };
}

function copyRows({ data, start, stride, size }: Head, first: number, count: number, to: Float32Array): void {
  if (stride === size) {
    to.set(data.subarray(start + first * size, start + (first + count) * size));
    return;
  }
  for (let i = 0; i < count; i++) {
    const from = start + (first + i) * stride;
    to.set(data.subarray(from, from + size), i * size);
  }
}

/** The reverse of `copyRows`. */
function writeRows(from: Float32Array, { data, start, stride, size }: Head, first: number): void {
  if (stride === size) {
    data.set(from, start + first * size);
    return;
  }
  for (let i = 0; i * size < from.length; i++) {
    data.set(from.subarray(i * size, (i + 1) * size), start + (first + i) * stride);
  }
}

function run(kernel: Kernel, tensors: AttentionTensors, spec: AttentionSpec, recipe: Recipe): Float32Array {
  const { batch, heads, kvHeads, queryLength, keyLength, headSize, valueHeadSize } = spec;
  const bias = additiveBias(tensors, spec);
  const { configure } = kernel.exports;
  kernel.reserve(configure(recipe.id, keyLength, headSize, valueHeadSize, spec.softcap, bias !== undefined));
  const output = new Float32Array(batch * heads * queryLength * valueHeadSize);
  const groupRows = (heads / kvHeads) * queryLength;
  for (let b = 0; b < batch; b++) {
    for (let kvHead = 0; kvHead < kvHeads; kvHead++) {
      packKeysAndValues(kernel, tensors, spec, b, kvHead);
      // The rows of all query heads that share these keys, one head after another.
      for (let first = 0; first < groupRows; first += BLOCK_ROWS) {
        const count = Math.min(BLOCK_ROWS, groupRows - first);
        attendRows(
          kernel,
          tensors,
          bias,
          spec,
          { batch: b, first: kvHead * groupRows + first, count },
          output,
        );
      }
    }
  }
  return output;
}

function packKeysAndValues(
  kernel: Kernel,
  tensors: AttentionTensors,
  spec: AttentionSpec,
  batch: number,
  kvHead: number,
): void {
  const { kvHeads, keyLength, headSize, valueHeadSize } = spec;
  const { rows, packKeys, packValues } = kernel.exports;
  const keys = headOf(tensors.key, spec, kvHeads, keyLength, headSize, batch, kvHead);
  const values = headOf(tensors.value, spec, kvHeads, keyLength, valueHeadSize, batch, kvHead);
  for (let first = 0; first < keyLength; first += TILE_KEYS) {
    const count = Math.min(TILE_KEYS, keyLength - first);
    copyRows(keys, first, count, kernel.floats(rows, count * headSize));
    packKeys(first / TILE_KEYS, count);
    copyRows(values, first, count, kernel.floats(rows, count * valueHeadSize));
    packValues(first / TILE_KEYS, count);
  }
}

/** Query rows of one sequence, counted over its heads. */
interface RowBlock {
  readonly batch: number;
  readonly first: number;
  readonly count: number;
}

function attendRows(
  kernel: Kernel,
  tensors: AttentionTensors,
  bias: ScoreTensor<Float32Array> | undefined,
  spec: AttentionSpec,
  block: RowBlock,
  output: Float32Array,
): void {
  const { heads, queryLength, headSize, valueHeadSize, scale } = spec;
  const { exports } = kernel;
  const inputs = kernel.floats(exports.rows, block.count * headSize);
  const visible = kernel.ints(exports.visible, block.count * 2);
  const sinks = kernel.floats(exports.sinks, block.count);
  for (const { at, count, head, query } of runs(block, queryLength)) {
    const queries = headOf(tensors.query, spec, heads, queryLength, headSize, block.batch, head);
    copyRows(queries, query, count, inputs.subarray(at * headSize));
    for (let i = 0; i < count; i++) {
      const { begin, end } = visibleKeys(spec, query + i);
      visible[2 * (at + i)] = begin;
      visible[2 * (at + i) + 1] = end;
    }
    sinks.fill(tensors.sinks ? tensors.sinks[head]! : -Infinity, at, at + count);
  }
  if (bias) writeBias(kernel, bias, spec, block, tensors.sinks !== undefined);
  exports.packQueries(block.count, scale);
  exports.attend(block.count);
  const results = kernel.floats(exports.rows, block.count * valueHeadSize);
  for (const { at, count, head, query } of runs(block, queryLength)) {
    const to = headOf(output, spec, heads, queryLength, valueHeadSize, block.batch, head);
    writeRows(results.subarray(at * valueHeadSize, (at + count) * valueHeadSize), to, query);
  }
}

/** Rows of a block that belong to one head. */
interface Run {
  /** Position of the first in the block. */
  readonly at: number;
  readonly count: number;
  readonly head: number;
  /** Query of the first. */
  readonly query: number;
}

function runs({ first, count }: RowBlock, queryLength: number): Run[] {
  const all: Run[] = [];
  for (let at = 0; at < count; ) {
    const query = (first + at) % queryLength;
    const length = Math.min(count - at, queryLength - query);
    all.push({ at, count: length, head: Math.floor((first + at) / queryLength), query });
    at += length;
  }
  return all;
}

/** Hands over the bias of every row; rows that share theirs by broadcasting share the copy. */
function writeBias(
  kernel: Kernel,
  bias: ScoreTensor<Float32Array>,
  spec: AttentionSpec,
  block: RowBlock,
  sunk: boolean,
): void {
  const { exports } = kernel;
  const strides = broadcastStrides(bias.dims);
  const index = kernel.ints(exports.biasIndex, block.count);
  let copied = -1;
  let last = -1;
  for (const { at, count, head, query } of runs(block, spec.queryLength)) {
    for (let i = 0; i < count; i++) {
      const start = block.batch * strides[0] + head * strides[1] + (query + i) * strides[2];
      if (start !== last) {
        copied++;
        const to = kernel.floats(exports.bias, spec.keyLength, copied * exports.biasStride.value);
        if (strides[3] === 1) to.set(bias.data.subarray(start, start + spec.keyLength));
        else to.fill(uniformBias(bias.data[start]!, sunk));
      }
      last = start;
      index[at + i] = copied;
    }
  }
}

/** A finite bias that all keys share changes a softmax only against a sink. A large one would cost the scores bits. */
function uniformBias(value: number, sunk: boolean): number {
  return Number.isFinite(value) && !sunk ? 0 : value;
}
