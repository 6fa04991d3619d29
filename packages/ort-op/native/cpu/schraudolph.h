// Schraudolph's exponential: the bits of a float are an affine function of the exponent.

// The least rms ripple.
constexpr float kSchraudolphCorrection = 60801.f / 1048576.f;
// log2 units above the reference at which a weight would pass 448 (the affine value passes 135.75).
constexpr float kRollback = 135.75f - 127.f + kSchraudolphCorrection;

// 2^(score - reference) as a bf16 whose bits are 2^7 * (score - corrected + 127), where `corrected` is the reference
// plus kSchraudolphCorrection. A number whose last bit is 1 is added, so that the multiply-add rounds to nearest even.
// At least 2^kSmallestExponent.
MXATTN_INLINE Floats schraudolph(Floats score, Floats corrected) {
  constexpr float kRound = 12582912.f;  // 1.5 * 2^23
  Floats x = maximum(score - corrected, splat(kSmallestExponent - kSchraudolphCorrection));
  return fromBits(bits(x * 128.f + (kRound + 127.f * 128.f)) << 16);
}
