// Matrix instructions on signed bytes, for exactly mapped MX elements. A product is that of kRows rows (keys or channels) by
// as many query rows along one block of 32; lane l has results for the query l % kRows, for the rows productRow(i, half).
//
// A fragment is what a lane has of a block of one row, l % kRows. The order of the block's elements in the products does not
// matter as long as both operands have the same, so each half of the wave takes 16 neighbouring bytes.
#pragma once

#if defined(MXATTN_GFX942) || defined(MXATTN_GFX90A) || defined(MXATTN_GFX11) || defined(MXATTN_GFX12)
#define MXATTN_MATRIX_I8 1

namespace mxattn::hip::kernels {

#if defined(MXATTN_GFX942) || defined(MXATTN_GFX90A)

struct Matrix {
  static constexpr int kWave = 64;
  static constexpr int kRows = 32;
  typedef int Products __attribute__((vector_size(64)));
  using Fragment = Words4;

  MXATTN_INLINE static Fragment load(const Byte* block, int half) { return words(block + 16 * half); }

  // Of this lane's 16 weights of a block.
  MXATTN_INLINE static Fragment weights(const unsigned (&own)[4], int) { return {{own[0], own[1], own[2], own[3]}}; }

  MXATTN_INLINE static Products multiply(const Fragment& a, const Fragment& b) {
    Products sum{};
#if defined(MXATTN_GFX942)
    MXATTN_UNROLL
    for (int w = 0; w < 4; w += 2) {
      sum = __builtin_amdgcn_mfma_i32_32x32x16_i8(pair(a.word[w], a.word[w + 1]), pair(b.word[w], b.word[w + 1]), sum, 0, 0, 0);
    }
#else
    MXATTN_UNROLL
    for (int w = 0; w < 4; w++) {
      sum = __builtin_amdgcn_mfma_i32_32x32x8i8(static_cast<int>(a.word[w]), static_cast<int>(b.word[w]), sum, 0, 0, 0);
    }
#endif
    return sum;
  }

 private:
  MXATTN_INLINE static long pair(unsigned low, unsigned high) {
    return static_cast<long>(low | static_cast<unsigned long>(high) << 32);
  }
};

#elif defined(MXATTN_GFX11)

struct Matrix {
  static constexpr int kWave = 32;
  static constexpr int kRows = 16;
  typedef int Products __attribute__((vector_size(32)));
  typedef int Operand __attribute__((vector_size(16)));
  // Both halves of the wave have the same.
  struct Fragment {
    Words4 part[2];
  };

  MXATTN_INLINE static Fragment load(const Byte* block, int) { return {{words(block), words(block + 16)}}; }

  MXATTN_INLINE static Fragment weights(const unsigned (&own)[4], int half) {
    Fragment all;
    MXATTN_UNROLL
    for (int w = 0; w < 4; w++) {
      auto other = static_cast<unsigned>(exchanged(static_cast<int>(own[w]), kRows));
      all.part[0].word[w] = half == 0 ? own[w] : other;
      all.part[1].word[w] = half == 0 ? other : own[w];
    }
    return all;
  }

  MXATTN_INLINE static Products multiply(const Fragment& a, const Fragment& b) {
    Products sum{};
    MXATTN_UNROLL
    for (int p = 0; p < 2; p++) {
      sum = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(true, __builtin_bit_cast(Operand, a.part[p]), true,
                                                       __builtin_bit_cast(Operand, b.part[p]), sum, false);
    }
    return sum;
  }
};

#else

struct Matrix {
  static constexpr int kWave = 32;
  static constexpr int kRows = 16;
  typedef int Products __attribute__((vector_size(32)));
  typedef int Operand __attribute__((vector_size(8)));
  using Fragment = Words4;

  MXATTN_INLINE static Fragment load(const Byte* block, int half) { return words(block + 16 * half); }

  MXATTN_INLINE static Fragment weights(const unsigned (&own)[4], int) { return {{own[0], own[1], own[2], own[3]}}; }

  MXATTN_INLINE static Products multiply(const Fragment& a, const Fragment& b) {
    Products sum{};
    MXATTN_UNROLL
    for (int w = 0; w < 4; w += 2) {
      sum = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(true, operand(a, w), true, operand(b, w), sum, false);
    }
    return sum;
  }

 private:
  MXATTN_INLINE static Operand operand(const Fragment& a, int word) {
    return Operand{static_cast<int>(a.word[word]), static_cast<int>(a.word[word + 1])};
  }
};

#endif

// Queries, scores, weights and outputs of a wave of kRows query rows.
template <int kRecipe, int kHeadBlocks, int kValueBlocks>
struct MatrixEngine {
  using Softmax = Bf16Weights;
  static constexpr int kWave = Matrix::kWave;
  static constexpr int kRows = Matrix::kRows;
  static constexpr int kResults = kRows * kRows / kWave;
  static constexpr int kWaves = 128 / kRows;
  static constexpr int kBlockBytes = 32;
  static constexpr int kScaleBytes = 4;
  static constexpr int kChannels = kValueBlocks * kBlock;
  static constexpr int kOutputs = kChannels / 2;
  static constexpr int kScores = kTileRows / 2;

  typename Matrix::Fragment query[kHeadBlocks];
  float queryScale[kHeadBlocks];
  float out[kOutputs];
  float sum;   // of the weights that this lane has
  float seed;  // what scores start at
  int lane, half;

  // The wave's queries: blocks of 32 channels, each of kTileRows rows, the first of them this lane's.
  MXATTN_INLINE MatrixEngine(const Byte* codes, const Byte* scales, int laneOfWave)
      : sum(0), seed(0), lane(laneOfWave % kRows), half(laneOfWave / kRows) {
    MXATTN_UNROLL
    for (int b = 0; b < kHeadBlocks; b++) {
      query[b] = Matrix::load(codes + b * kTileRows * kBlockBytes, half);
      queryScale[b] = reinterpret_cast<const float*>(scales)[b * kTileRows] * Softmax::kUnits;
    }
    MXATTN_UNROLL
    for (int i = 0; i < kOutputs; i++) out[i] = 0;
  }

  MXATTN_INLINE void scores(const Byte* keys, const Byte* keyScales, bool seeded, float (&score)[kScores]) const {
    auto scale = reinterpret_cast<const float*>(keyScales);
    int first = lane, firstScale = productRow(kMatrixOrder, 0, half);
    MXATTN_UNROLL
    for (int part = 0; part < kTileRows / kRows; part++) {
      begin(first);
      begin(firstScale);
      float* s = score + part * kResults;
      MXATTN_UNROLL
      for (int i = 0; i < kResults; i++) s[i] = seeded ? seed : 0.f;
      MXATTN_UNROLL
      for (int b = 0; b < kHeadBlocks; b++) {
        int row = b * kTileRows + part * kRows;
        auto products = Matrix::multiply(Matrix::load(keys + (row + first) * kBlockBytes, half), query[b]);
        MXATTN_UNROLL
        for (int i = 0; i < kResults; i++) {
          s[i] = fma(static_cast<float>(products[i]), scale[row + firstScale + productRow(kMatrixOrder, i, 0)] * queryScale[b], s[i]);
          finish(s[i]);
        }
      }
    }
  }

  MXATTN_INLINE void setSeed(float x) { seed = x; }

  MXATTN_INLINE void rescale(float factor) {
    sum *= factor;
    MXATTN_UNROLL
    for (int i = 0; i < kOutputs; i++) out[i] *= factor;
  }

  // The products of the weights of a tile with its values.
  MXATTN_INLINE void accumulate(const int (&weight)[kScores], const int (&top)[2], int carry, const Byte* values,
                                const Byte* valueScales) {
    auto scale = reinterpret_cast<const float*>(valueScales);
    MXATTN_UNROLL
    for (int b = 0; b < 2; b++) {
      const int* own = weight + b * (kScores / 2);
      WeightScale weightScale(bf16OfWeight(larger(top[b], exchanged(top[b], kRows))), carry);
      float unit = weightScale.unit();
      unsigned codes[4];
      integerWeights<kScores / 2>(own, weightScale.inverse(), codes);
      int total = 0;
      MXATTN_UNROLL
      for (int w = 0; w < 4; w++) total = dot4(static_cast<int>(codes[w]), 0x01010101, total);
      sum = fma(static_cast<float>(total), unit, sum);
      typename Matrix::Fragment weights = Matrix::weights(codes, half);
      int first = lane, firstScale = productRow(kMatrixOrder, 0, half);
      MXATTN_UNROLL
      for (int part = 0; part < kChannels / kRows; part++) {
        begin(first);
        begin(firstScale);
        int channel = b * kChannels + part * kRows;
        auto products = Matrix::multiply(Matrix::load(values + (channel + first) * kBlockBytes, half), weights);
        MXATTN_UNROLL
        for (int i = 0; i < kResults; i++) {
          float& o = out[part * kResults + i];
          o = fma(static_cast<float>(products[i]), scale[channel + firstScale + productRow(kMatrixOrder, i, 0)] * unit, o);
          finish(o);
        }
      }
    }
  }

  MXATTN_INLINE float output(int i) const { return out[i]; }
  MXATTN_INLINE float totalWeight() const { return sum + fromBits(exchanged(bitsOf(sum), kRows)); }
};

}  // namespace mxattn::hip::kernels

#endif
