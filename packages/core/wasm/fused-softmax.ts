// Fused-Softmax (arXiv 2611.09225): the reference of a row is the maximum of its first tile with a visible key, then
// frozen. A weight is P = 2^(score - reference) by Schraudolph's map, whose bits are an affine function of the exponent,
// rounded to bf16, then to E2M3 in blocks of 32 keys. A score more than ROLLBACK above the reference raises it. The
// sum is that of the same weights.
//
// Scores come in units of 2^-7 log2: 1 is the last bit of a bf16, so that the map is one addition. Budget per 4
// scores: 2 instructions to find the block's maximum, 15 from score to code.

import { scaleExponents, inversePowers, powers } from './quantise';
import { raise } from './row-state';
import { BLOCK, GROUP_ROWS, SEPARATE, SUSPICIOUS, TILE_KEYS } from './sizes';
import { reference, spareWeight, sums, weight, weightScales } from './state';
import { largestLane, roundToInt, toInts } from './vector';

export const UNIT: f32 = 128;

/** Schraudolph's correction with the least rms ripple, 60801 / 2^20 log2. */
const CORRECTION: f32 = UNIT * (60801.0 / 1048576.0);
/** Above the reference the weight would pass 448: the affine value is 135.75 * UNIT there. */
const ROLLBACK: f32 = UNIT * (135.75 - 127) + CORRECTION;
/** The affine value of 1, in the middle of bf16's bits; weights of 0 lie as far below. */
const ONE: f32 = UNIT * 127;
/** 1.5 * 2^23 + ONE: the low 16 bits of what it is added to become the rounded bf16. */
const TO_BF16: f32 = 12582912 + ONE;
/** Bits of a bf16 below which a block counts as zeros: 2^-80 of the reference. */
const NEGLIGIBLE = (127 - 80) << 7;

function largestOfBlock(scores: usize): f32 {
  let top = v128.load(scores);
  for (let i = 16; i < BLOCK * 4; i += 16) top = f32x4.pmax(top, v128.load(scores + i));
  return largestLane(top);
}

function anyNaN(scores: usize): bool {
  let nan = i32x4.splat(0);
  for (let i = scores; i < scores + TILE_KEYS * 4; i += 16) {
    const s = v128.load(i);
    nan = v128.or(nan, f32x4.ne(s, s));
  }
  return v128.any_true(nan);
}

/** Biased scale exponent of a block of weights whose largest score is `largest`; -1 for a block of zeros. */
@inline function blockExponent(largest: f32, subtracted: f32): i32 {
  const bf16 = roundToInt(max(largest - subtracted, -ONE)) + <i32>ONE;
  if (bf16 < NEGLIGIBLE) return -1;
  return i32x4.extract_lane(scaleExponents(weight, i32x4.splat(bf16 << 16)), 0);
}

/** Integers of 4 weights, in units of 1 / `inverse`, rounded to steps of an element that is 2^-3 at `one`. */
@inline function weigh(score: v128, subtracted: v128, inverse: v128, one: v128): v128 {
  const affine = f32x4.pmax(f32x4.sub(score, subtracted), f32x4.splat(-ONE));
  // 0x4b400000 and the sign of the bf16 shift out.
  const p = i32x4.shl(f32x4.add(affine, f32x4.splat(TO_BF16)), 16);
  const x = f32x4.mul(p, inverse);
  // Adding 1.5 * 2^20 times the power of two of x, but not less than 8 steps, rounds to 4 significant bits.
  const power = i32x4.max_s(v128.and(x, i32x4.splat(0x7f800000)), one);
  const magic = i32x4.add(power, i32x4.splat((20 << 23) + 0x00400000));
  return toInts(f32x4.sub(f32x4.add(x, magic), magic));
}

/** Codes of a block; the sum of its codes as 4 integers. */
function weighBlock<T>(scores: usize, m: f32, exponent: i32, unit: i32, codes: usize): v128 {
  const subtracted = f32x4.splat(m);
  // The unit's integers are 8 to 1 as in E2M3.
  const inverse = i32x4.add(inversePowers(i32x4.splat(unit)), i32x4.splat(3 << 23));
  const one = i32x4.splat((127 + 3 + exponent - unit) << 23);
  let sum = i32x4.splat(0);
  if (sizeof<T>() == 2) {
    const largest = i16x8.splat(<i16>60 << <i16>(exponent - unit));
    for (let i = 0; i < BLOCK; i += 8) {
      const at = scores + i * 4;
      const x0 = weigh(v128.load(at), subtracted, inverse, one);
      const x1 = weigh(v128.load(at, 16), subtracted, inverse, one);
      const x = i16x8.min_s(i16x8.narrow_i32x4_s(x0, x1), largest);
      v128.store(codes + i * 2, x);
      sum = i32x4.add(sum, i32x4.dot_i16x8_s(x, i16x8.splat(1)));
    }
  } else {
    const largest = i8x16.splat(<i8>60 << <i8>(exponent - unit));
    for (let i = 0; i < BLOCK; i += 16) {
      const at = scores + i * 4;
      const x0 = weigh(v128.load(at), subtracted, inverse, one);
      const x1 = weigh(v128.load(at, 16), subtracted, inverse, one);
      const x2 = weigh(v128.load(at, 32), subtracted, inverse, one);
      const x3 = weigh(v128.load(at, 48), subtracted, inverse, one);
      const low = i16x8.narrow_i32x4_s(x0, x1), high = i16x8.narrow_i32x4_s(x2, x3);
      const x = i8x16.min_u(i8x16.narrow_i16x8_u(low, high), largest);
      v128.store(codes + i, x);
      sum = i32x4.relaxed_dot_i8x16_i7x16_add_s(i8x16.splat(1), x, sum);
    }
  }
  return sum;
}

/** Scale of integers in units of this exponent. */
@inline function scaleOf(unit: i32): f32 {
  return f32x4.extract_lane(powers(i32x4.splat(unit)), 0) * 0.125;
}

@inline function addToSum(row: i32, codes: v128, scale: f32): void {
  const sum = v128.load(sums + row * 16);
  v128.store(sums + row * 16, f32x4.add(sum, f32x4.mul(f32x4.convert_i32x4_s(codes), f32x4.splat(scale))));
}

/**
 * Turns a row of scores into codes of weights and their scales.
 *
 * @param flags of query and key.
 * @param lane of the row in its group.
 * @returns SEPARATE if the two blocks have different scales.
 */
export function fusedSoftmax<T>(row: i32, scores: usize, flags: i32, codes: usize, lane: i32): i32 {
  const scales = weightScales + lane * 4;
  let m = load<f32>(reference + row * 4) * UNIT;
  let top0 = largestOfBlock(scores), top1 = largestOfBlock(scores + BLOCK * 4);
  let top = max(top0, top1);
  if (flags & SUSPICIOUS && anyNaN(scores)) top = <f32>NaN;
  // Written so that NaN raises the reference, too.
  if (!(top - m <= ROLLBACK)) m = raise(row, top / UNIT) * UNIT;
  const subtracted = m + CORRECTION;
  const exponent0 = blockExponent(top0, subtracted), exponent1 = blockExponent(top1, subtracted);
  if (!(m > -Infinity) || max(exponent0, exponent1) < 0) {
    memory.fill(codes, 0, TILE_KEYS * sizeof<T>());
    store<f32>(scales, 0);
    store<f32>(scales, 0, GROUP_ROWS * 4);
    return 0;
  }
  const e0 = exponent0 < 0 ? exponent1 : exponent0;
  const e1 = exponent1 < 0 ? exponent0 : exponent1;
  const separate = abs(e0 - e1) > spareWeight;
  const unit0 = separate ? e0 : min(e0, e1);
  const unit1 = separate ? e1 : unit0;
  store<f32>(scales, scaleOf(unit0));
  store<f32>(scales, scaleOf(unit1), GROUP_ROWS * 4);
  const secondCodes = codes + BLOCK * sizeof<T>();
  addToSum(row, weighBlock<T>(scores, subtracted, e0, unit0, codes), scaleOf(unit0));
  addToSum(row, weighBlock<T>(scores + BLOCK * 4, subtracted, e1, unit1, secondCodes), scaleOf(unit1));
  return separate ? SEPARATE : 0;
}
