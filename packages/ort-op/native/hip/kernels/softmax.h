// Fused-Softmax (arXiv 2611.09225). The reference of a row is the maximum of its first tile of 64 keys with a visible one,
// then frozen. A weight is 2^(score - reference) by Schraudolph's map: the bits of a number are an affine function of its
// exponent. Products of query and key are made in units of that function and start at minus the reference, so that they are
// affine values at once. A score more than kRollback above the reference raises it.
#pragma once

namespace mxattn::hip::kernels {

// The least rms ripple.
constexpr float kCorrection = 60801.f / 1048576.f;

// An affine value as an integer above kNoWeight, the bits of 1.5 * 2^23: adding that number rounds. The low half is a bf16.
// Integers are in the order of the values; those of values without weight are at most kNoWeight, those of NaN above all.
constexpr int kNoWeight = 0x4b400000;
// bf16 bits below which a block counts as zeros: 2^-70 of the reference.
constexpr int kNegligible = (127 - 70) << 7;

// Weights as bf16, to be rounded to elements. In units of 1/128 of a log2 unit; the offset is added when they are rounded to
// integers, as before that it would cost them fraction bits.
struct Bf16Weights {
  using Weight = int;
  static constexpr int kUnitsExponent = 7;
  static constexpr float kUnits = 128.f;
  static constexpr float kRollback = 135.75f - 127.f + kCorrection;
  // log2 of the largest weight of the tile that the reference comes from.
  static constexpr float kLift = 0.f;
  // Bits of the weight 1.
  static constexpr float kOne = 127.f * kUnits;
  // E4M3's largest, 448.
  static constexpr int kMost = kNoWeight + 17376;

  MXATTN_INLINE static int of(float affine) { return static_cast<int>(bitsOf(affine + (kOne + 12582912.f))); }
};

// The same where two weights are packed at once. A weight is its affine value until then.
struct PackedBf16 {
  using Weight = float;
  static constexpr int kUnitsExponent = 7;
  static constexpr float kUnits = 128.f;
  static constexpr float kRollback = Bf16Weights::kRollback;
  static constexpr float kLift = 0.f;
  static constexpr float kOne = Bf16Weights::kOne;
  // That of kRollback is 1120.
  static constexpr float kMost = 1119.5f;

  MXATTN_INLINE static float of(float affine) { return affine; }
};

// Weights straight as E4M3 codes, without a bf16 between. An affine value is the code, not rounded, less that of 1.
struct E4m3Codes {
  using Weight = float;
  static constexpr int kUnitsExponent = 3;
  static constexpr float kUnits = 8.f;
  // Where rounding would pass 448.
  static constexpr float kRollback = 8.87f;
  static constexpr float kLift = 4.f;
  static constexpr float kOne = 7.f * kUnits;
  // That of kRollback is 70.496.
  static constexpr float kMost = 70.49f;
  static constexpr float kLargestCode = 126.f;

  MXATTN_INLINE static float of(float affine) { return affine; }
  MXATTN_INLINE static unsigned code(float affine) {
    // Adding 1.5 * 2^23 rounds.
    return bitsOf(maximum(minimum(affine + kOne, kLargestCode), 0.f) + 12582912.f) & 255u;
  }
};

template <int kCount, typename Weight>
MXATTN_INLINE Weight largestOf(const Weight* weights) {
  Weight top = weights[0];
  MXATTN_UNROLL
  for (int i = 1; i < kCount; i++) top = larger(top, weights[i]);
  return top;
}

MXATTN_INLINE int bf16OfWeight(int weight) { return larger(weight, kNoWeight) - kNoWeight; }
MXATTN_INLINE float floatOfWeight(int weight) { return fromBits(static_cast<unsigned>(larger(weight, kNoWeight)) << 16); }

// The scale of a block of E2M3 weights by its largest weight.
struct WeightScale {
  // E8M0.
  int code;
  bool negligible;

  // By its bf16 bits.
  MXATTN_INLINE WeightScale(int bits, int carry) {
    code = larger(((bits + carry) >> 7) - 2, 0);
    negligible = bits < kNegligible;
  }

  // What one of the integers counts, and what makes integers of weights.
  MXATTN_INLINE float unit() const { return negligible ? 0.f : scaleOf(code) * 0.125f; }
  MXATTN_INLINE float inverse() const { return inverseScaleOf(code) * 8.f; }
};

// What a row knows of its softmax.
template <typename Weights>
struct RowState {
  // The score whose weight is 1. Minus infinity before the first visible key, NaN once a score was.
  float reference;

  MXATTN_INLINE bool started() const { return reference > -infinity(); }

  MXATTN_INLINE float affine(float score) const {
    return started() ? (score - (reference + kCorrection)) * Weights::kUnits : -Weights::kOne;
  }

  // Takes a tile with this maximum; returns what has been accumulated so far is to be multiplied by.
  MXATTN_INLINE float move(float top, bool nan) {
    float before = reference;
    if (nan || isNaN(before)) {
      reference = notANumber();
    } else if (before == -infinity()) {
      reference = top - Weights::kLift;
    } else if (top - before > Weights::kRollback) {
      reference = top - Weights::kLift;
      return exp2(before - reference);
    }
    return 1.f;
  }

  // What affine values start at.
  MXATTN_INLINE float seed() const { return -(reference + kCorrection) * Weights::kUnits; }
};

// Masks the scores of a tile of 64 keys, in log2 units, moves the reference where needed, and makes affine values of them.
// Returns what has been accumulated so far is to be multiplied by.
//
// `Lanes` says which part of a row a lane has: kScores of them, that of key firstKey() + keyOf(i) of the tile; largestOfRow
// is over the lanes that share a row.
template <bool kAdjusted, typename Lanes, typename Weights>
MXATTN_INLINE float affineValues(const Lanes& lanes, float (&score)[Lanes::kScores], RowState<Weights>& state, bool masked,
                                 const Masks& masks, const Row& row, int firstKey) {
  if (masked) {
    maskScores<kAdjusted>(score, masks, row, firstKey + lanes.firstKey(), [](int i) { return Lanes::keyOf(i); });
  }
  float top = -infinity();
  // The bits of a NaN without its sign are above those of any number. maximum() loses it.
  int worst = 0;
  MXATTN_UNROLL
  for (int i = 0; i < Lanes::kScores; i++) {
    top = maximum(top, score[i]);
    worst = larger(worst, static_cast<int>(bitsOf(score[i]) & 0x7fffffffu));
  }
  top = lanes.largestOfRow(top);
  float factor = state.move(top, lanes.largestOfRow(worst > 0x7f800000 ? 1.f : 0.f) > 0);
  MXATTN_UNROLL
  for (int i = 0; i < Lanes::kScores; i++) score[i] = state.affine(score[i]);
  return factor;
}

// The E2M3 weight as an integer of at most 60. `inverse` takes the unit of its block to 1.
MXATTN_INLINE int integerWeight(int weight, float inverse) {
  float x = floatOfWeight(weight) * inverse;
  // Adding 1.5 * 2^20 times the power of two rounds to 4 significant bits, below 8 to integers.
  float magic = fromBits((bitsOf(maximum(x, 8.f)) & 0x7f800000u) + 0x0a400000u);
  return static_cast<int>(minimum((x + magic) - magic, 60.f));
}

// Several, four a word.
template <int kCount>
MXATTN_INLINE void integerWeights(const int* weights, float inverse, unsigned* words) {
  MXATTN_UNROLL
  for (int w = 0; w < kCount / 4; w++) {
    unsigned word = 0;
    MXATTN_UNROLL
    for (int i = 0; i < 4; i++) word |= static_cast<unsigned>(integerWeight(weights[4 * w + i], inverse)) << (8 * i);
    words[w] = word;
    finish(words[w]);
  }
}

// What a row's accumulated outputs are multiplied by: zero without a visible key, NaN for a row with a NaN score.
MXATTN_INLINE float normaliser(float reference, float sum) {
  if (isNaN(reference)) return reference;
  return reference == -infinity() ? 0.f : 1.f / sum;
}

MXATTN_INLINE float withSink(float reference, float sum, const Masks& masks, int head) {
  if (!masks.sinks || !(reference > -infinity())) return sum;
  return sum + exp2(at<const float>(masks.sinks)[head] * kLog2e - reference);
}

}  // namespace mxattn::hip::kernels
