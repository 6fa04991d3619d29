// Functions of four floats.

/** 1.5 * 2^23: added to a float below 2^22 it leaves the rounded integer in the low bits, above these. */
const ROUND: f32 = 12582912;
const ROUND_BITS = 0x4b400000;

export const LOG2E: f32 = 1.44269504;

/**
 * Below this a weight 2^x is 0. It would change no sum of fewer than 2^50 weights with one near 1 among them, and
 * products with it would be subnormal numbers, which cost a hundred times as much as others.
 */
export const SMALLEST_EXPONENT: f32 = -80;

/** a * b + c, rounded once or twice. */
@inline export function multiplyAdd(a: v128, b: v128, c: v128): v128 {
  if (ASC_FEATURE_RELAXED_SIMD) return f32x4.relaxed_madd(a, b, c);
  return f32x4.add(f32x4.mul(a, b), c);
}

/** Of whole numbers below 2^22. */
@inline export function toInts(x: v128): v128 {
  if (ASC_FEATURE_RELAXED_SIMD) return i32x4.relaxed_trunc_f32x4_s(x);
  return roundToInts(x);
}

/** Rounded to nearest even; |x| < 2^22. */
@inline export function roundToInts(x: v128): v128 {
  return i32x4.sub(f32x4.add(x, f32x4.splat(ROUND)), i32x4.splat(ROUND_BITS));
}

@inline export function largestLane(x: v128): f32 {
  x = f32x4.pmax(x, i8x16.shuffle(x, x, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
  return max(f32x4.extract_lane(x, 0), f32x4.extract_lane(x, 1));
}

/** The largest lane of each of four vectors. */
@inline export function largestLanes(a: v128, b: v128, c: v128, d: v128): v128 {
  // a0 b0 a1 b1 and a2 b2 a3 b3: a and b end in lanes 0 and 2, 1 and 3.
  const ab = f32x4.pmax(
    i8x16.shuffle(a, b, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23),
    i8x16.shuffle(a, b, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31),
  );
  const cd = f32x4.pmax(
    i8x16.shuffle(c, d, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23),
    i8x16.shuffle(c, d, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31),
  );
  return f32x4.pmax(
    i8x16.shuffle(ab, cd, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23),
    i8x16.shuffle(ab, cd, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31),
  );
}

@inline export function sumOfLanes(x: v128): f32 {
  return (
    f32x4.extract_lane(x, 0) + f32x4.extract_lane(x, 1) + (f32x4.extract_lane(x, 2) + f32x4.extract_lane(x, 3))
  );
}

/** 2^x to 1e-7 relative; 0 below SMALLEST_EXPONENT. */
@inline export function exp2(x: v128): v128 {
  const clamped = f32x4.pmax(f32x4.splat(SMALLEST_EXPONENT), x);
  const shifted = f32x4.add(clamped, f32x4.splat(ROUND));
  const f = f32x4.sub(clamped, f32x4.sub(shifted, f32x4.splat(ROUND)));
  // Minimax polynomial of 2^f on [-1/2, 1/2], error 7.5e-8.
  let p = f32x4.splat(1.3276472e-3);
  p = multiplyAdd(p, f, f32x4.splat(9.67554133e-3));
  p = multiplyAdd(p, f, f32x4.splat(5.55071327e-2));
  p = multiplyAdd(p, f, f32x4.splat(2.40221197e-1));
  p = multiplyAdd(p, f, f32x4.splat(6.93146967e-1));
  p = multiplyAdd(p, f, f32x4.splat(1.00000007));
  const result = i32x4.add(p, i32x4.shl(shifted, 23));
  return v128.andnot(result, f32x4.lt(x, f32x4.splat(SMALLEST_EXPONENT)));
}

/** 2^x of one number, which is taken as 127 if it is larger. */
export function exp2Of(x: f32): f32 {
  return f32x4.extract_lane(exp2(f32x4.splat(min(x, 127))), 0);
}

/** To 1e-7 absolute. */
@inline export function tanh(x: v128): v128 {
  const e = exp2(f32x4.mul(f32x4.pmin(x, f32x4.splat(20)), f32x4.splat(2 * LOG2E)));
  return f32x4.sub(f32x4.splat(1), f32x4.div(f32x4.splat(2), f32x4.add(f32x4.splat(1), e)));
}
