// The inner loop of everything: 4 rows of a left operand times a panel of 8 columns.
//
// Both operands come in steps of 4 bytes: one f32, two i16 or four 8-bit integers along the axis that is summed over.
// A step of a panel is 32 bytes, 4 for each of its 8 columns; a step of a row is repeated in all lanes. Budget per step:
// 2 loads of the panel, 4 splatting loads, 8 multiply-adds. With 8 accumulators, 2 vectors of the panel, a splat and a
// product 12 of the 15 usable registers are taken; unrolling spills.

import { GROUP_ROWS, PANEL_COLUMNS, TILE_KEYS } from './sizes';
import { multiplyAdd } from './vector';

/** Left operand whose 4 rows alternate step by step, so that one pointer with constant offsets serves all. */
@unmanaged export class Interleaved { rowBytes: u32; }

/** Left operand whose rows of TILE_KEYS elements follow one another. */
@unmanaged export class RowMajor { rowBytes: u64; }

// Interleaved operands are 4 bytes a row and step, the others a row apart.
@inline function isInterleaved<Order>(): bool { return offsetof<Order>() == sizeof<u32>(); }

/**
 * T names the left operand: f32; i16 for both; i8 for signed codes times a panel of 7 bits; u8 for codes of 7 bits
 * times a signed panel. (What a relaxed dot product makes of an eighth bit in the 7-bit operand depends on the CPU.)
 */
@inline function accumulate<T>(sum: v128, left: v128, panel: v128): v128 {
  if (isFloat<T>()) return multiplyAdd(left, panel, sum);
  if (sizeof<T>() == 2) return i32x4.add(sum, i32x4.dot_i16x8_s(left, panel));
  if (isSigned<T>()) return i32x4.relaxed_dot_i8x16_i7x16_add_s(left, panel, sum);
  return i32x4.relaxed_dot_i8x16_i7x16_add_s(panel, left, sum);
}

@inline function writeRow<T>(target: usize, scales: usize, factor: usize, add: bool, a: v128, b: v128): void {
  if (!isFloat<T>()) {
    const f = v128.load_splat<u32>(factor);
    const scaleA = f32x4.mul(v128.load(scales), f), scaleB = f32x4.mul(v128.load(scales, 16), f);
    a = f32x4.convert_i32x4_s(a);
    b = f32x4.convert_i32x4_s(b);
    if (add) {
      a = multiplyAdd(a, scaleA, v128.load(target));
      b = multiplyAdd(b, scaleB, v128.load(target, 16));
    } else {
      a = f32x4.mul(a, scaleA);
      b = f32x4.mul(b, scaleB);
    }
  }
  v128.store(target, a);
  v128.store(target, b, 16);
}

/** Four products of two 8-bit integers, for finding out what the engine makes of them. */
export function probe(signed: i32, sevenBits: i32): i32 {
  if (!ASC_FEATURE_RELAXED_SIMD) return 0;
  const left = i8x16.splat(<i8>signed), right = i8x16.splat(<i8>sevenBits);
  return i32x4.extract_lane(i32x4.relaxed_dot_i8x16_i7x16_add_s(left, right, i32x4.splat(0)), 0);
}

/**
 * The products with a run of panels, whose columns follow one another in the target.
 * Integers: target[row][column] (+)= (start[row] + left . panel) * scales[column] * factors[row].
 * Floats: target[row][column] (+)= left . panel.
 *
 * @param panels of `panelBytes` each, of which `steps` count from the start.
 * @param start four i32, or 0.
 * @param scales 8 for every panel, `scaleBytes` apart.
 * @param add whether to add to the target or to overwrite it.
 */
export function product<T, Order>(
  left: usize,
  steps: i32,
  panels: usize,
  count: i32,
  panelBytes: i32,
  start: usize,
  scales: usize,
  scaleBytes: i32,
  factors: usize,
  target: usize,
  targetRowBytes: i32,
  add: bool,
): void {
  const end = target + count * PANEL_COLUMNS * 4;
  for (; target < end; target += PANEL_COLUMNS * 4) {
    const target1 = target + targetRowBytes;
    const target2 = target1 + targetRowBytes;
    const target3 = target2 + targetRowBytes;
    let a0 = i32x4.splat(0), a1 = a0, a2 = a0, a3 = a0, b0 = a0, b1 = a0, b2 = a0, b3 = a0;
    if (!isFloat<T>() && start != 0) {
      a0 = b0 = v128.load_splat<u32>(start);
      a1 = b1 = v128.load_splat<u32>(start, 4);
      a2 = b2 = v128.load_splat<u32>(start, 8);
      a3 = b3 = v128.load_splat<u32>(start, 12);
    }
    if (isFloat<T>() && add) {
      a0 = v128.load(target);
      b0 = v128.load(target, 16);
      a1 = v128.load(target1);
      b1 = v128.load(target1, 16);
      a2 = v128.load(target2);
      b2 = v128.load(target2, 16);
      a3 = v128.load(target3);
      b3 = v128.load(target3, 16);
    }
    let step = panels, x = left;
    const last = panels + steps * PANEL_COLUMNS * 4;
    do {
      const a = v128.load(step);
      const b = v128.load(step, 16);
      let q = v128.load_splat<u32>(x);
      a0 = accumulate<T>(a0, q, a);
      b0 = accumulate<T>(b0, q, b);
      q = v128.load_splat<u32>(x, offsetof<Order>() == 4 ? 4 : TILE_KEYS * sizeof<T>());
      a1 = accumulate<T>(a1, q, a);
      b1 = accumulate<T>(b1, q, b);
      q = v128.load_splat<u32>(x, offsetof<Order>() == 4 ? 8 : 2 * TILE_KEYS * sizeof<T>());
      a2 = accumulate<T>(a2, q, a);
      b2 = accumulate<T>(b2, q, b);
      q = v128.load_splat<u32>(x, offsetof<Order>() == 4 ? 12 : 3 * TILE_KEYS * sizeof<T>());
      a3 = accumulate<T>(a3, q, a);
      b3 = accumulate<T>(b3, q, b);
      step += PANEL_COLUMNS * 4;
      x += isInterleaved<Order>() ? GROUP_ROWS * 4 : 4;
    } while (step < last);
    writeRow<T>(target, scales, factors, add, a0, b0);
    writeRow<T>(target1, scales, factors + 4, add, a1, b1);
    writeRow<T>(target2, scales, factors + 8, add, a2, b2);
    writeRow<T>(target3, scales, factors + 12, add, a3, b3);
    panels += panelBytes;
    scales += scaleBytes;
  }
}
