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

/** Of whole numbers below 2^22. */
@inline export function toInts(x: v128): v128 {
  if (ASC_FEATURE_RELAXED_SIMD) return i32x4.relaxed_trunc_f32x4_s(x);
  return i32x4.sub(f32x4.add(x, f32x4.splat(ROUND)), i32x4.splat(ROUND_BITS));
}

/** Rounded to nearest even; |x| < 2^22. */
@inline export function roundToInt(x: f32): i32 {
  return reinterpret<i32>(x + ROUND) - ROUND_BITS;
}

@inline export function largestLane(x: v128): f32 {
  x = f32x4.pmax(x, i8x16.shuffle(x, x, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
  return max(f32x4.extract_lane(x, 0), f32x4.extract_lane(x, 1));
}

@inline export function sumOfLanes(x: v128): f32 {
  return (
    f32x4.extract_lane(x, 0) + f32x4.extract_lane(x, 1) + (f32x4.extract_lane(x, 2) + f32x4.extract_lane(x, 3))
  );
}

/** 2^x to 1e-7 relative; 0 below SMALLEST_EXPONENT. */
export function exp2(x: v128): v128 {
  const clamped = f32x4.pmax(f32x4.splat(SMALLEST_EXPONENT), x);
  const shifted = f32x4.add(clamped, f32x4.splat(ROUND));
  const f = f32x4.sub(clamped, f32x4.sub(shifted, f32x4.splat(ROUND)));
  // Taylor series of 2^f on [-1/2, 1/2]: the first term left out is 5e-9.
  let p = f32x4.splat(1.52527338e-5);
  p = f32x4.add(f32x4.mul(p, f), f32x4.splat(1.54035304e-4));
  p = f32x4.add(f32x4.mul(p, f), f32x4.splat(1.33335581e-3));
  p = f32x4.add(f32x4.mul(p, f), f32x4.splat(9.61812911e-3));
  p = f32x4.add(f32x4.mul(p, f), f32x4.splat(5.55041087e-2));
  p = f32x4.add(f32x4.mul(p, f), f32x4.splat(2.40226507e-1));
  p = f32x4.add(f32x4.mul(p, f), f32x4.splat(6.93147181e-1));
  p = f32x4.add(f32x4.mul(p, f), f32x4.splat(1));
  const result = i32x4.add(p, i32x4.shl(shifted, 23));
  return v128.andnot(result, f32x4.lt(x, f32x4.splat(SMALLEST_EXPONENT)));
}

/** 2^x of one number, which is taken as 127 if it is larger. */
export function exp2Of(x: f32): f32 {
  return f32x4.extract_lane(exp2(f32x4.splat(min(x, 127))), 0);
}

/** To 1e-7 absolute. */
export function tanh(x: v128): v128 {
  const e = exp2(f32x4.mul(f32x4.pmin(x, f32x4.splat(20)), f32x4.splat(2 * LOG2E)));
  return f32x4.sub(f32x4.splat(1), f32x4.div(f32x4.splat(2), f32x4.add(f32x4.splat(1), e)));
}
