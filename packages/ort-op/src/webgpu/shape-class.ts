import type { AttentionSpec } from '@mxattn/core';

/** Elements under one scale. */
export const BLOCK = 32;
/** Keys that the quantising kernels take at a time: the recipes' tile. */
export const TILE = 64;
/** Channels of the output that one workgroup computes at most. */
const LARGEST_VALUE_CHUNK = 128;

/** Of query, key, value, bias, sinks and output alike. Kernels compute in float32. */
export type ElementType = 'float32' | 'float16';

/** What kernels are specialised for; all else comes as uniforms. */
export interface ShapeClass {
  readonly elementType: ElementType;
  readonly headSize: number;
  readonly valueHeadSize: number;
  readonly softcap: boolean;
  readonly bias: boolean;
  readonly sinks: boolean;
}

/** The shape class of an attention, of float32 by default. */
export function shapeClass(
  { headSize, valueHeadSize, softcap }: AttentionSpec,
  { elementType = 'float32', bias, sinks }: { elementType?: ElementType; bias: boolean; sinks: boolean },
): ShapeClass {
  return { elementType, headSize, valueHeadSize, softcap: softcap > 0, bias, sinks };
}

/** How the channels of query, key and value are divided. */
export interface Channels {
  /** Blocks of a packed query or key row. */
  readonly headBlocks: number;
  /** Blocks that are multiplied at a time, and how often. */
  readonly chunkBlocks: number;
  readonly chunks: number;
  /** Size of a packed row in 16 bytes: integers, then scales. */
  readonly rowVectors: number;
  /** Output channels of a workgroup, and how many workgroups share a row. */
  readonly valueChunk: number;
  readonly valueChunks: number;
  /** Channels of packed values. */
  readonly valueChannels: number;
}

export function channelsOf({
  headSize,
  valueHeadSize,
}: Pick<ShapeClass, 'headSize' | 'valueHeadSize'>): Channels {
  const blocks = Math.ceil(headSize / BLOCK);
  // Four scales fill 16 bytes.
  const chunkBlocks = Math.min(blocks, 4);
  const chunks = Math.ceil(blocks / chunkBlocks);
  const headBlocks = chunkBlocks * chunks;
  const valueChunks = Math.ceil(valueHeadSize / LARGEST_VALUE_CHUNK);
  const valueChunk = Math.ceil(valueHeadSize / valueChunks / 8) * 8;
  return {
    headBlocks,
    chunkBlocks,
    chunks,
    rowVectors: headBlocks * 2 + chunks,
    valueChunk,
    valueChunks,
    valueChannels: valueChunk * valueChunks,
  };
}

/** A short name of a shape class, for keys of pipelines. */
export function className(shape: ShapeClass): string {
  const { elementType, headSize, valueHeadSize, softcap, bias, sinks } = shape;
  const flags = [
    elementType === 'float16' && elementType,
    softcap && 'softcap',
    bias && 'bias',
    sinks && 'sinks',
  ].filter(Boolean);
  return [headSize, valueHeadSize, ...flags].join(' ');
}

/** Whether attend_matrix.wgsl has this head size. */
export function suitsMatrix({ headSize, valueHeadSize }: ShapeClass): boolean {
  return headSize === valueHeadSize && (headSize === 64 || headSize === 128);
}
