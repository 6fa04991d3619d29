// Elements of MX formats times STEPS: E2M1 and E2M3 are then integers, at most 12 and 60 (LARGEST), E4M3 at most 3584. Blocks
// of 32 share a scale.

/** Biased exponent of the scale of a block whose largest magnitude has these bits. */
fn scaleExponent(largest: u32) -> u32 {
  // SCALE_CARRY carries into the exponent what is above the largest element, for scales that never saturate.
  return max((largest + SCALE_CARRY) >> 23u, MAX_EXPONENT) - MAX_EXPONENT;
}

/** 2^-e for a biased exponent e. */
fn inversePower(exponent: u32) -> f32 {
  return bitcast<f32>((254u - exponent) << 23u);
}

/** What 1 / STEPS of an element counts; NaN for a block with a NaN or an infinity. Below 2^-126 it flushes to zero. */
fn integerScale(exponent: u32, largest: u32) -> u32 {
  let scale = bitcast<u32>(bitcast<f32>(exponent << 23u) * (1f / STEPS));
  return select(scale, 0x7fc00000u, largest >= 0x7f800000u);
}

/** The element nearest to x, ties to even, saturated, times STEPS. */
fn element(x: f32) -> f32 {
  // The power of two of x, but not less than that (LOWEST_POWER, its bits) below which elements are equidistant.
  let power = max(bitcast<u32>(x) & 0x7f800000u, LOWEST_POWER);
  let significand = round(x * bitcast<f32>(0x7f000000u - power) * STEPS);
  return clamp(significand * bitcast<f32>(power), -LARGEST, LARGEST);
}

fn elementInteger(x: f32) -> i32 {
  return i32(element(x));
}
