import type { Layout } from '../attention/spec.js';
import { MxattnError } from '../errors.js';

/** Elements that share one scale (OCP Microscaling v1.0, section 5.1). */
export const BLOCK_SIZE = 32;

/**
 * A dense tensor seen as lines along one axis, the axis along which it is cut into blocks. The last block
 * of a line may be ragged.
 */
export interface LineView {
  readonly lines: number;
  /** Elements of a line. */
  readonly length: number;
  /** Distance between neighbours of a line. */
  readonly stride: number;
  /** Index of the first element of a line. */
  start(line: number): number;
}

/** Sizes of a query, key, value or output tensor. */
export interface TensorSizes {
  readonly batch: number;
  readonly heads: number;
  readonly sequence: number;
  readonly channels: number;
}

/** A matrix of contiguous rows, in lines along its rows. */
export function rowView(rows: number, columns: number): LineView {
  return { lines: rows, length: columns, stride: 1, start: (line) => line * columns };
}

/**
 * Lines of a BHSD or BSHD tensor along its channels (lines ordered by batch, head, position; the axis of Q
 * and K) or along its sequence (ordered by batch, head, channel; the axis of V).
 */
export function tensorView(sizes: TensorSizes, layout: Layout, axis: 'channels' | 'sequence'): LineView {
  const { batch, heads, sequence, channels } = sizes;
  for (const [name, size] of Object.entries({ batch, heads, sequence, channels })) {
    if (!Number.isInteger(size) || size < 0) throw new MxattnError(`tensor view: ${name} is ${size}`);
  }
  const positionStride = layout === 'BHSD' ? channels : heads * channels;
  const headStride = layout === 'BHSD' ? sequence * channels : channels;
  const batchStride = heads * sequence * channels;
  const across = axis === 'channels' ? sequence : channels;
  const acrossStride = axis === 'channels' ? positionStride : 1;
  return {
    lines: batch * heads * across,
    length: axis === 'channels' ? channels : sequence,
    stride: axis === 'channels' ? 1 : positionStride,
    start(line) {
      const head = Math.floor(line / across);
      return (
        Math.floor(head / heads) * batchStride + (head % heads) * headStride + (line % across) * acrossStride
      );
    },
  };
}
