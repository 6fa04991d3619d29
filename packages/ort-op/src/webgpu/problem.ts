import type { AttentionSpec, Layout } from '@mxattn/core';
import { BLOCK, type Channels, TILE } from './shape-class.js';

/** Of an unlimited window: more than any length, and far from the limits of i32. */
const UNLIMITED = 2 ** 30;

/** Sizes of the packed operands. */
export interface PackedSizes {
  /** Bytes. */
  readonly queries: number;
  readonly keys: number;
  readonly values: number;
  /** Offset of the scales in the packed values, bytes. */
  readonly valueScales: number;
  /** Rows of a key head and blocks of a value head, padded to whole tiles. */
  readonly keyRows: number;
  readonly valueBlocks: number;
}

/** @param floats Operands are kept as float32, not as 8-bit integers; then only values have scales apart. */
export function packedSizes(spec: AttentionSpec, channels: Channels, floats: boolean): PackedSizes {
  const { batch, heads, kvHeads, queryLength, keyLength } = spec;
  const keyRows = Math.ceil(keyLength / TILE) * TILE;
  const valueBlocks = keyRows / BLOCK;
  const rowBytes = floats ? channels.headBlocks * BLOCK * 4 : channels.rowVectors * 16;
  const valueLines = batch * kvHeads * valueBlocks * channels.valueChannels;
  // Bindings begin at multiples of 256 bytes.
  const valueScales = Math.ceil((valueLines * BLOCK * (floats ? 4 : 1)) / 256) * 256;
  return {
    queries: batch * heads * queryLength * rowBytes,
    keys: batch * kvHeads * keyRows * rowBytes,
    values: valueScales + valueLines * 4,
    valueScales,
    keyRows,
    valueBlocks,
  };
}

/** Steps in elements from one batch, head and token to the next, and 0, which kernels use as a number unknown to compilers. */
function strides(layout: Layout, heads: number, tokens: number, size: number): number[] {
  const batch = heads * tokens * size;
  return layout === 'BHSD' ? [batch, tokens * size, size, 0] : [batch, size, heads * size, 0];
}

/** Axis orders of operands that do not all have that of the spec. */
export interface OperandLayouts {
  readonly query: Layout;
  readonly key: Layout;
  readonly value: Layout;
  readonly output: Layout;
}

/** Size of the struct Problem of problem.wgsl. */
export const PROBLEM_BYTES = 4 * (8 + 5 * 4 + 8);

/** The struct Problem of problem.wgsl. */
export function problemUniform(
  spec: AttentionSpec,
  sizes: PackedSizes,
  biasStrides: readonly number[],
  weightCarry = 0,
  layouts: OperandLayouts = { query: spec.layout, key: spec.layout, value: spec.layout, output: spec.layout },
): Uint32Array<ArrayBuffer> {
  const { batch, heads, kvHeads, queryLength, keyLength, headSize, valueHeadSize, window } = spec;
  const right = window ? window.right : UNLIMITED;
  const keyTokens = spec.keyCapacity ?? keyLength;
  const words = Uint32Array.of(
    heads,
    kvHeads,
    queryLength,
    keyLength,
    window ? Math.min(window.left, UNLIMITED) : UNLIMITED,
    spec.causal ? 0 : Math.min(right, UNLIMITED),
    0,
    0,
    ...biasStrides,
    ...strides(layouts.query, heads, queryLength, headSize),
    ...strides(layouts.key, kvHeads, keyTokens, headSize),
    ...strides(layouts.value, kvHeads, keyTokens, valueHeadSize),
    ...strides(layouts.output, heads, queryLength, valueHeadSize),
    sizes.keyRows,
    sizes.valueBlocks,
    sizes.valueScales / 16,
    batch,
    // Uniform structs end at a multiple of 16 bytes.
    ...[weightCarry, 0, 0, 0],
  );
  new Float32Array(words.buffer).set(
    [spec.softcap * Math.LOG2E, Math.fround(Math.fround(spec.scale) * Math.LOG2E)],
    6,
  );
  return words;
}
