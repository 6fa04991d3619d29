// Conventional softmax: the reference of a row is its running maximum.

import { TILE_KEYS } from './sizes';
import { reference, sums } from './state';
import { raise } from './row-state';
import { exp2, largestLane } from './vector';

/** Replaces a row of scores (log2 units) by its weights. */
export function onlineSoftmax(row: i32, scores: usize): void {
  let top = f32x4.splat(-Infinity);
  let nan = i32x4.splat(0);
  for (let i = scores; i < scores + TILE_KEYS * 4; i += 16) {
    const s = v128.load(i);
    top = f32x4.pmax(top, s);
    nan = v128.or(nan, f32x4.ne(s, s));
  }
  const largest = v128.any_true(nan) ? <f32>NaN : largestLane(top);
  let m = load<f32>(reference + row * 4);
  if (!(largest <= m)) m = raise(row, largest);
  if (!(m > -Infinity)) {
    memory.fill(scores, 0, TILE_KEYS * 4);
    return;
  }
  let sum = v128.load(sums + row * 16);
  for (let i = scores; i < scores + TILE_KEYS * 4; i += 16) {
    const p = exp2(f32x4.sub(v128.load(i), f32x4.splat(m)));
    sum = f32x4.add(sum, p);
    v128.store(i, p);
  }
  v128.store(sums + row * 16, sum);
}
