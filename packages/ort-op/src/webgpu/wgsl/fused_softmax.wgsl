// Fused-Softmax (arXiv 2611.09225): the reference of a row is the maximum of its first tile of 64 keys with a visible one,
// then frozen. A weight is 2^(score - reference) by Schraudolph's map, whose bits are an affine function of the
// exponent, rounded to bf16, then to E2M3 in blocks of 32 keys. A score more than ROLLBACK above the reference raises it.

// Schraudolph's correction with the least rms ripple.
const CORRECTION = 60801f / 1048576f;
// Above the reference the weight would pass 448: the affine value is then 135.75.
const ROLLBACK = 135.75f - 127f + CORRECTION;
// bf16 bits below which a block counts as zeros: 2^-80 of the reference.
const NEGLIGIBLE = (127u - 80u) << 7u;
// E2M3 as integers.
const WEIGHT_STEPS = 8f;
const LARGEST_WEIGHT = 60f;

/** The reference after a tile with this maximum, MASKED for none. NaN, once taken, stays. */
fn movedReference(reference: f32, largest: f32) -> f32 {
  if (isNaN(reference) || largest == MASKED) { return reference; }
  if (isNaN(largest)) { return largest; }
  if (reference == MASKED || largest - reference > ROLLBACK) { return largest; }
  return reference;
}

/** What was accumulated under one reference, under another. */
fn rescaling(before: f32, after: f32) -> f32 {
  return select(exp2(before - after), 0f, before == MASKED);
}

/** Bits of the bf16 near 2^x. The offset is added to the integer: before rounding it would cost the fraction bits. */
fn schraudolph(x: f32) -> f32 {
  return max(round(fma(x, 128f, -CORRECTION * 128f)) + 127f * 128f, 0f);
}

/** Biased exponent of the unit of a block of weights whose largest has these bf16 bits. */
fn weightExponent(largest: u32) -> u32 {
  // WEIGHT_CARRY carries into the exponent what is above the largest element, for scales that never saturate.
  return max((largest + WEIGHT_CARRY) >> 7u, 2u) - 2u;
}

/** The E2M3 weight, as an integer, of bf16 bits under a unit of this biased exponent. */
fn weightInteger(bits: f32, exponent: u32) -> u32 {
  // In units of 1/8 of the element 1, the same float with another exponent.
  let shifted = u32(max(bits - f32(exponent << 7u) + f32((127u + 3u) << 7u), 0f)) << 16u;
  let power = max(shifted & 0x7f800000u, 0x41000000u);
  let significand = round(bitcast<f32>(shifted) * bitcast<f32>(0x7f000000u - power) * 8f);
  return u32(min(significand * bitcast<f32>(power) * 0.125f, LARGEST_WEIGHT));
}
