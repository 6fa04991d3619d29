// What the softmax keeps of a row: reference, sum and output.

import { out, outStride, reference, sinks, sums } from './state';
import { exp2Of, LOG2E, sumOfLanes } from './vector';

/** Before the first visible key. */
export function resetRow(row: i32): void {
  store<f32>(reference + row * 4, -Infinity);
  v128.store(sums + row * 16, f32x4.splat(0));
  const begin = out + row * outStride;
  for (let i = begin; i < begin + outStride; i += 16) v128.store(i, f32x4.splat(0));
}

/**
 * Takes a higher reference, in log2 units; what was accumulated shrinks. NaN, once taken, stays; infinity would make
 * NaN of the next score.
 *
 * @returns the new reference.
 */
export function raise(row: i32, to: f32): f32 {
  const from = load<f32>(reference + row * 4);
  if (isNaN(from) || to == Infinity) to = NaN;
  store<f32>(reference + row * 4, to);
  if (!(from > -Infinity)) return to;
  const factor = f32x4.splat(exp2Of(from - to));
  v128.store(sums + row * 16, f32x4.mul(v128.load(sums + row * 16), factor));
  const begin = out + row * outStride;
  for (let i = begin; i < begin + outStride; i += 16) v128.store(i, f32x4.mul(v128.load(i), factor));
  return to;
}

/**
 * Writes the finished output of a row, and up to 7 floats behind it: rows are finished in order.
 *
 * A row without a visible key is zeros, one with a NaN reference all NaN.
 */
export function finishRow(row: i32, to: usize): void {
  const m = load<f32>(reference + row * 4);
  const sum = sumOfLanes(v128.load(sums + row * 16)) + exp2Of(load<f32>(sinks + row * 4) * LOG2E - m);
  let factor: f32 = m == -Infinity ? 0 : 1 / sum;
  if (isNaN(m)) factor = NaN;
  const from = out + row * outStride;
  const f = f32x4.splat(factor);
  for (let i = 0; i < outStride; i += 16) v128.store(to + i, f32x4.mul(v128.load(from + i), f));
}
