// CDNA4's matrix instructions on MX elements with their block scales: v_mfma_scale_f32_32x32x64_f8f6f4, 32 rows (keys or
// channels) by 32 query rows along two blocks of 32.
//
// Products start at minus the reference, and the units of Schraudolph's function are in the scales of the query: what comes out
// is rounded, and is a bf16 or an E4M3 code. Weights are packed by the conversion instructions and summed by one more product,
// with ones.
#pragma once

#if defined(MXATTN_GFX950)
#define MXATTN_MATRIX_SCALED 1

namespace mxattn::hip::kernels {

typedef int Fragment8 __attribute__((vector_size(32)));
typedef float Floats2 __attribute__((vector_size(8)));
typedef float Products16 __attribute__((vector_size(64)));

typedef short Shorts2 __attribute__((vector_size(4)));
#if !defined(MXATTN_EMULATED)
typedef __bf16 Bf16x2 __attribute__((ext_vector_type(2)));
typedef __bf16 Bf16x32 __attribute__((ext_vector_type(32)));
#endif

struct alignas(8) Words2 {
  unsigned word[2];
};

struct Words16 {
  unsigned word[16];
};

// Format numbers of the instruction.
constexpr int kFormatE4m3 = 0, kFormatE2m3 = 2, kFormatE2m1 = 4;

template <int kRecipe>
struct PackedWeights {
  using Type = PackedBf16;
};

template <>
struct PackedWeights<kMxfp6Direct> {
  using Type = E4m3Codes;
};

template <int kRecipe, int kHeadBlocks, int kValueBlocks>
struct MatrixEngine {
  static constexpr int kElements = kRecipe == kMxfp6Direct ? kMxfp6 : kRecipe;
  // E4M3 weights have no block scale.
  static constexpr bool kE4m3Weights = kRecipe == kMxfp8 || kRecipe == kMxfp6Direct;
  using Softmax = typename PackedWeights<kRecipe>::Type;
  static constexpr int kWave = 64;
  static constexpr int kRows = 32;
  static constexpr int kResults = 16;
  static constexpr int kWaves = kHeadBlocks + kValueBlocks <= kMostBlocksOf8Waves ? 8 : 4;
  static constexpr int kBlockBytes = PackedBlocks<kElements, false>::kBytes;
  static constexpr int kScaleBytes = 1;
  static constexpr int kChannels = kValueBlocks * kBlock;
  static constexpr int kOutputs = kChannels / 2;
  static constexpr int kScores = kTileRows / 2;
  static constexpr int kSteps = kHeadBlocks / 2;
  static constexpr int kFormat = kElements == kMxfp8 ? kFormatE4m3 : kElements == kMxfp6 ? kFormatE2m3 : kFormatE2m1;
  static constexpr int kWeightFormat = kE4m3Weights ? kFormatE4m3 : kFormatE2m3;
  static_assert(kHeadBlocks % 2 == 0);

  Fragment8 query[kSteps];
  int queryScale[kSteps];
  Products16 out[kValueBlocks];
  // What scores start at, in every result.
  Products16 seed;
  // The sum of all weights of the row, in every result.
  Products16 sum;
  int lane, half;

  // Two blocks of a row, the second `stride` bytes behind the first. Of elements of 4 and 6 bits each half of the wave has one
  // block; of those of 8 bits, half of both.
  MXATTN_INLINE static Fragment8 load(const Byte* block, int stride, int half) {
    Fragment8 f{};
    if constexpr (kElements == kMxfp8) {
      Words4 low = words(block + 16 * half), high = words(block + stride + 16 * half);
      MXATTN_UNROLL
      for (int w = 0; w < 4; w++) {
        f[w] = static_cast<int>(low.word[w]);
        f[4 + w] = static_cast<int>(high.word[w]);
      }
    } else {
      block += half * stride;
      MXATTN_UNROLL
      for (int w = 0; w < kBlockBytes / 8; w++) {
        Words2 two = *reinterpret_cast<const Words2*>(block + 8 * w);
        f[2 * w] = static_cast<int>(two.word[0]);
        f[2 * w + 1] = static_cast<int>(two.word[1]);
      }
    }
    return f;
  }

  MXATTN_INLINE static Products16 splat(float x) {
    Products16 all;
    MXATTN_UNROLL
    for (int i = 0; i < 16; i++) all[i] = x;
    return all;
  }

  // The wave's queries: blocks of 32 channels, each of kTileRows rows, the first of them this lane's.
  MXATTN_INLINE MatrixEngine(const Byte* codes, const Byte* scales, int laneOfWave)
      : seed(splat(0)), sum(splat(0)), lane(laneOfWave % kRows), half(laneOfWave / kRows) {
    constexpr int stride = kTileRows * kBlockBytes;
    MXATTN_UNROLL
    for (int s = 0; s < kSteps; s++) {
      query[s] = load(codes + 2 * s * stride, stride, half);
      int code = scales[(2 * s + half) * kTileRows];
      queryScale[s] = code == 255 ? 255 : larger(smaller(code + Softmax::kUnitsExponent, 254), 0);
    }
    MXATTN_UNROLL
    for (int c = 0; c < kValueBlocks; c++) out[c] = splat(0);
  }

  MXATTN_INLINE void scores(const Byte* keys, const Byte* keyScales, bool seeded, float (&score)[kScores]) const {
    constexpr int stride = kTileRows * kBlockBytes;
    MXATTN_UNROLL
    for (int part = 0; part < 2; part++) {
      int row = part * kRows + lane;
      Products16 products = seeded ? seed : splat(0);
      MXATTN_UNROLL
      for (int s = 0; s < kSteps; s++) {
        Fragment8 key = load(keys + 2 * s * stride + row * kBlockBytes, stride, half);
        int scale = keyScales[(2 * s + half) * kTileRows + row];
        products = __builtin_amdgcn_mfma_scale_f32_32x32x64_f8f6f4(key, query[s], products, kFormat, kFormat, 0, scale, 0,
                                                                   queryScale[s]);
      }
      MXATTN_UNROLL
      for (int i = 0; i < kResults; i++) score[part * kResults + i] = products[i];
    }
  }

  MXATTN_INLINE void setSeed(float x) { seed = splat(x); }

  MXATTN_INLINE void rescale(float factor) {
    sum *= factor;
    MXATTN_UNROLL
    for (int c = 0; c < kValueBlocks; c++) out[c] *= factor;
  }

  // The bits of two weights, the first in the low half. A float that is a small integer times the least subnormal is that
  // integer by its bits, and what is not an integer is rounded on the way. The bits of a negative number are a low integer, which
  // saturates to 0x8000: minus zero as a bf16, and zero in its low byte. Compilers for gfx950 leave subnormals on.
  MXATTN_INLINE static unsigned pair(float first, float second) {
    constexpr float kLeast = 0x1p-149f;
    Floats2 two{first, second};
    two = two * kLeast + Softmax::kOne * kLeast;
    int low = static_cast<int>(bitsOf(two[0])), high = static_cast<int>(bitsOf(two[1]));
    return __builtin_bit_cast(unsigned, __builtin_amdgcn_cvt_pk_i16(low, high));
  }

  // The weights as an operand, and the E8M0 code of their scale.
  MXATTN_INLINE static Fragment8 operand(const float (&weight)[kScores], const float (&top)[2], int carry, int& scaleCode) {
    Fragment8 f{};
    if constexpr (kRecipe == kMxfp6Direct) {
      scaleCode = 127;
      MXATTN_UNROLL
      for (int w = 0; w < 8; w++) {
        const float* four = weight + 4 * w;
        f[w] = static_cast<int>(evenBytes(pair(four[0], four[1]), pair(four[2], four[3])));
      }
    } else if constexpr (kRecipe == kMxfp8) {
      scaleCode = 127;
      MXATTN_UNROLL
      for (int w = 0; w < 8; w++) {
        // E4M3 codes of four weights.
        const float* four = weight + 4 * w;
        Shorts2 codes{};
        codes = __builtin_amdgcn_cvt_scalef32_pk_fp8_bf16(codes, __builtin_bit_cast(Bf16x2, pair(four[0], four[1])), 1.f, false);
        codes = __builtin_amdgcn_cvt_scalef32_pk_fp8_bf16(codes, __builtin_bit_cast(Bf16x2, pair(four[2], four[3])), 1.f, true);
        f[w] = __builtin_bit_cast(int, codes);
      }
    } else {
      // Halves of the wave exchange weights until each has one block: the first those of keys 0 to 31 of the tile.
      Words16 block;
      MXATTN_UNROLL
      for (int w = 0; w < 8; w++) {
        const float *first = weight + 2 * w, *second = weight + kResults + 2 * w;
        auto swapped = __builtin_amdgcn_permlane32_swap(pair(first[0], first[1]), pair(second[0], second[1]), false, false);
        block.word[w] = swapped[0];
        block.word[8 + w] = swapped[1];
      }
      auto tops = __builtin_amdgcn_permlane32_swap(bitsOf(top[0]), bitsOf(top[1]), false, false);
      float largest = larger(fromBits(tops[0]), fromBits(tops[1]));
      WeightScale scale(static_cast<int>(pair(largest, largest) & 0x7fffu), carry);
      scaleCode = scale.code;
      auto codes = __builtin_amdgcn_cvt_scalef32_pk32_fp6_bf16(__builtin_bit_cast(Bf16x32, block), scaleOf(scaleCode));
      MXATTN_UNROLL
      for (int w = 0; w < 6; w++) f[w] = static_cast<int>(codes[w]);
    }
    return f;
  }

  // The products of the weights of a tile with its values.
  MXATTN_INLINE void accumulate(const float (&weight)[kScores], const float (&top)[2], int carry, const Byte* values,
                                const Byte* valueScales) {
    int weightScale;
    Fragment8 weights = operand(weight, top, carry, weightScale);
    constexpr int kOnes = 0x22222222;  // E2M1
    Fragment8 ones{kOnes, kOnes, kOnes, kOnes};
    sum = __builtin_amdgcn_mfma_scale_f32_32x32x64_f8f6f4(ones, weights, sum, kFormatE2m1, kWeightFormat, 0, 127, 0,
                                                          weightScale);
    constexpr int stride = kChannels * kBlockBytes;
    MXATTN_UNROLL
    for (int c = 0; c < kValueBlocks; c++) {
      int channel = c * kRows + lane;
      Fragment8 value = load(values + channel * kBlockBytes, stride, half);
      out[c] = __builtin_amdgcn_mfma_scale_f32_32x32x64_f8f6f4(value, weights, out[c], kFormat, kWeightFormat, 0,
                                                               valueScales[half * kChannels + channel], 0, weightScale);
    }
  }

  MXATTN_INLINE float output(int i) const { return out[i / kResults][i % kResults]; }
  MXATTN_INLINE float totalWeight() const { return sum[0]; }
};

}  // namespace mxattn::hip::kernels

#endif
