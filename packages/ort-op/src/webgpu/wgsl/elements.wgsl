// Elements of MX formats as integers: E2M1 times 2 and E2M3 times 8, at most 12 and 60 (STEPS, LARGEST). Blocks of 32
// share a scale.

/** Biased exponent of the scale of a block whose largest magnitude has these bits. */
fn scaleExponent(largest: u32) -> u32 {
  // SCALE_CARRY carries into the exponent what is above the largest element, for scales that never saturate.
  return max((largest + SCALE_CARRY) >> 23u, 2u) - 2u;
}

/** 2^-e for a biased exponent e. */
fn inversePower(exponent: u32) -> f32 {
  return bitcast<f32>((254u - exponent) << 23u);
}

/** What an integer of a block counts; NaN for a block with a NaN or an infinity. Below 2^-126 it flushes to zero. */
fn integerScale(exponent: u32, largest: u32) -> u32 {
  let scale = bitcast<u32>(bitcast<f32>(exponent << 23u) * (1f / STEPS));
  return select(scale, 0x7fc00000u, largest >= 0x7f800000u);
}

/** The element nearest to x, ties to even, saturated, as an integer. */
fn elementInteger(x: f32) -> i32 {
  // The power of two of x, but not less than 1, below which elements are equidistant.
  let power = max(bitcast<u32>(x) & 0x7f800000u, 0x3f800000u);
  let significand = round(x * bitcast<f32>(0x7f000000u - power) * STEPS);
  return i32(clamp(significand * bitcast<f32>(power), -LARGEST, LARGEST));
}
