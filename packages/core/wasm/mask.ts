// Soft cap, bias and masks on the scores of one row in one tile.

import { TILE_KEYS } from './sizes';
import { bias, biased, biasIndex, biasStride, softcap, visible } from './state';
import { LOG2E, tanh } from './vector';

const LARGEST: f32 = 3.4028234663852886e38;

/** @param unit of the scores, per nat. */
function capScores(scores: usize, unit: f32): void {
  const cap = f32x4.splat(softcap * unit);
  for (let i = scores; i < scores + TILE_KEYS * 4; i += 16) {
    v128.store(i, f32x4.mul(cap, tanh(f32x4.div(v128.load(i), cap))));
  }
}

/**
 * A finite bias stays finite, so that a row whose keys all carry the lowest float attends to all of them alike, as the
 * softmax of such scores does. Minus infinity masks whatever the score is, NaN included.
 */
function addBias(scores: usize, from: usize, unit: f32): void {
  for (let i = 0; i < TILE_KEYS * 4; i += 16) {
    const b = v128.load(from + i);
    const scaled = f32x4.pmax(f32x4.mul(b, f32x4.splat(unit)), f32x4.splat(-LARGEST));
    const sum = f32x4.add(v128.load(scores + i), scaled);
    v128.store(scores + i, v128.bitselect(b, sum, f32x4.eq(b, f32x4.splat(-Infinity))));
  }
}

function maskOutside(scores: usize, begin: i32, end: i32): void {
  let key = i32x4(0, 1, 2, 3);
  for (let i = scores; i < scores + TILE_KEYS * 4; i += 16) {
    const inside = v128.and(i32x4.ge_s(key, i32x4.splat(begin)), i32x4.lt_s(key, i32x4.splat(end)));
    v128.store(i, v128.bitselect(v128.load(i), f32x4.splat(-Infinity), inside));
    key = i32x4.add(key, i32x4.splat(4));
  }
}

/** @param unit of the scores, per log2. */
export function maskScores(scores: usize, row: i32, firstKey: i32, unit: f32): void {
  if (softcap > 0) capScores(scores, unit * LOG2E);
  if (biased) {
    const index = load<i32>(biasIndex + row * 4);
    addBias(scores, bias + (index * biasStride + firstKey) * 4, unit * LOG2E);
  }
  const begin = load<i32>(visible + row * 8) - firstKey;
  const end = load<i32>(visible + row * 8, 4) - firstKey;
  if (begin > 0 || end < TILE_KEYS) maskOutside(scores, begin, end);
}
