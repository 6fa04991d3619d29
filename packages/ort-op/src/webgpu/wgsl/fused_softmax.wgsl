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
const LARGEST_WEIGHT = 60u;

/** The reference after a tile with this maximum, MASKED for none. NaN, once taken, stays. */
fn movedReference(reference: f32, largest: f32) -> f32 {
  if (isNaN(reference)) { return reference; }
  if (isNaN(largest)) { return largest; }
  if (largest == MASKED) { return reference; }
  if (reference == MASKED || largest - reference > ROLLBACK) { return largest; }
  return reference;
}

/** What was accumulated under one reference, under another. */
fn rescaling(before: f32, after: f32) -> f32 {
  return select(exp2(before - after), 0f, before == MASKED);
}

/**
 * Bits of the bf16 near 2^x, in the low half; what is above them means nothing. Adding 1.5 * 2^23 rounds; the offset of the
 * affine map is added with it, as before that it would cost fraction bits.
 */
fn schraudolph(x: f32) -> u32 {
  return bitcast<u32>(max(fma(x, 128f, -CORRECTION * 128f), -127f * 128f) + (12582912f + 127f * 128f));
}

/** Biased exponent of the unit of a block of weights whose largest has these bf16 bits. */
fn weightExponent(largest: u32) -> u32 {
  // For scales that never saturate, the carry takes what is above the largest element to the next exponent.
  return max((largest + problem.weightCarry) >> 7u, 2u) - 2u;
}

/**
 * The E2M3 weight, as an integer, of bf16 bits times `inverse`, which takes the unit to 1: rounded to 4 significant bits, or
 * to integers below 8. Adding 1.5 * 2^20 times the power of two rounds; differences of bits count the steps.
 */
fn weightInteger(bits: u32, inverse: f32) -> u32 {
  let x = bitcast<f32>(bits << 16u) * inverse;
  let power = max(bitcast<u32>(x) & 0x7f800000u, 0x41000000u);
  let magic = power + 0x0A400000u;
  let steps = bitcast<u32>(x + bitcast<f32>(magic)) - magic;
  return min(steps << ((power >> 23u) - 130u), LARGEST_WEIGHT);
}

/** The E4M3 weight of bf16 bits: rounded to 4 significant bits, or to multiples of 2^-9 below 2^-6; at most 448. */
fn weightE4m3(bits: u32) -> f32 {
  let x = bitcast<f32>(bits << 16u);
  let power = max(bitcast<u32>(x) & 0x7f800000u, 0x3C800000u);
  // As in weightInteger.
  let magic = power + 0x0A400000u;
  let steps = bitcast<u32>(x + bitcast<f32>(magic)) - magic;
  return min(f32(steps) * bitcast<f32>(power - 0x01800000u), 448f);
}
