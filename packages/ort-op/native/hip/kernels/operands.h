// How blocks of 32 elements lie in memory, for the different products.
#pragma once

namespace mxattn::hip::kernels {

MXATTN_INLINE unsigned word4(const int* n) {
  return (n[0] & 255u) | (n[1] & 255u) << 8 | (n[2] & 255u) << 16 | (n[3] & 255u) << 24;
}

// Floats: as they are at f32, or rounded to a block format. The scale is in them.
template <int kRecipe, bool kValues>
struct FloatBlocks {
  using Scale = float;
  static constexpr int kBytes = 128;
  static constexpr bool kScales = false;

  MXATTN_INLINE static void encode(const float (&x)[kBlock], unsigned largest, unsigned (&words)[kBytes / 4], Scale&) {
    if constexpr (kRecipe == kFloat32) {
      MXATTN_UNROLL
      for (int i = 0; i < kBlock; i++) words[i] = bitsOf(x[i]);
    } else {
      constexpr ElementFormat format = elementFormat(kRecipe, kValues);
      int code = scaleCode(largest, format);
      float inverse = inverseScaleOf(code), scale = scaleOf(code);
      MXATTN_UNROLL
      for (int i = 0; i < kBlock; i++) words[i] = bitsOf(rounded(x[i] * inverse, format) * scale);
    }
  }
};

// Elements as signed bytes, exactly, and what one of them counts.
template <int kRecipe, bool kValues>
struct ByteBlocks {
  using Scale = float;
  static constexpr int kBytes = 32;
  static constexpr bool kScales = true;

  MXATTN_INLINE static void encode(const float (&x)[kBlock], unsigned largest, unsigned (&words)[kBytes / 4],
                                   Scale& scale) {
    constexpr ElementFormat format = elementFormat(kRecipe, kValues);
    int code = scaleCode(largest, format);
    float inverse = inverseScaleOf(code);
    scale = scaleOf(code) * (1.f / format.toInteger);
    MXATTN_UNROLL
    for (int w = 0; w < 8; w++) {
      int n[4];
      for (int i = 0; i < 4; i++) n[i] = static_cast<int>(rounded(x[4 * w + i] * inverse, format) * format.toInteger);
      words[w] = word4(n);
    }
  }
};

// Elements as their own codes, densely, and the E8M0 scale.
template <int kRecipe, bool kValues>
struct PackedBlocks {
  using Scale = Byte;
  static constexpr int kBits = kRecipe == kMxfp4 ? 4 : kRecipe == kMxfp6 ? 6 : 8;
  static constexpr int kBytes = 4 * kBits;
  static constexpr bool kScales = true;

  MXATTN_INLINE static void encode(const float (&x)[kBlock], unsigned largest, unsigned (&words)[kBytes / 4],
                                   Scale& scale) {
    constexpr ElementFormat format = elementFormat(kRecipe, kValues);
    int code = scaleCode(largest, format);
    float inverse = inverseScaleOf(code);
    scale = static_cast<Byte>(code);
    MXATTN_UNROLL
    for (int w = 0; w < kBytes / 4; w++) words[w] = 0;
    MXATTN_UNROLL
    for (int i = 0; i < kBlock; i++) {
      float element = rounded(x[i] * inverse, format);
      unsigned bits;
      if constexpr (kRecipe == kMxfp8) {
        bits = e4m3Code(element);
      } else if constexpr (kRecipe == kMxfp6) {
        bits = e2m3Code(static_cast<int>(element * format.toInteger));
      } else {
        bits = e2m1Code(static_cast<int>(element * format.toInteger));
      }
      int first = i * kBits / 32, shift = i * kBits % 32;
      words[first] |= bits << shift;
      if (shift + kBits > 32) words[first + 1] |= bits >> (32 - shift);
    }
  }
};

// Where the lanes of a product of 32 or 16 keys by as many queries have their results: the row, which is a key or a channel,
// of a lane's result `i`. `half`: lane / queries. The sum of a part for each of the two.
MXATTN_INLINE constexpr int productRow(int order, int i, int half) {
  if (order == kOrderMfma) return 8 * (i / 4) + 4 * half + i % 4;
  if (order == kOrderGfx11) return 2 * i + half;
  return 8 * half + i;
}

// Of this architecture's matrix instructions.
#if defined(MXATTN_GFX950) || defined(MXATTN_GFX942) || defined(MXATTN_GFX90A)
constexpr int kMatrixOrder = kOrderMfma;
#elif defined(MXATTN_GFX11)
constexpr int kMatrixOrder = kOrderGfx11;
#elif defined(MXATTN_GFX12)
constexpr int kMatrixOrder = kOrderGfx12;
#else
constexpr int kMatrixOrder = kInOrder;
#endif

// Token of a block at a position of its values. Lanes of half h have the weights of positions 16h to 16h + 15.
MXATTN_INLINE int tokenAt(int order, int position) {
  int half = position / 16, i = position % 16;
  if (order == kInOrder) return position;
  if (order == kOrderMfma) return productRow(order, i, half);
  return 16 * (i / 8) + productRow(order, i % 8, half);
}

}  // namespace mxattn::hip::kernels
