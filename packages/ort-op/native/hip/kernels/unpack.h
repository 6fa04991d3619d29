// Packed blocks back to elements.
#pragma once

namespace mxattn::hip::kernels {

// How a cache of a recipe holds the blocks of keys, or of values.
template <int kRecipe, bool kValues>
struct CacheBlocks : PackedBlocks<kRecipe, kValues> {};

template <bool kValues>
struct CacheBlocks<kFloat32, kValues> : FloatBlocks<kFloat32, kValues> {
  static constexpr int kBits = 32;
};

template <int kWords>
MXATTN_INLINE void loadWords(const Byte* from, unsigned (&to)[kWords]) {
  auto source = reinterpret_cast<const unsigned*>(from);
  MXATTN_UNROLL
  for (int w = 0; w < kWords; w++) to[w] = source[w];
}

// Bits of element i.
template <int kBits, int kWords>
MXATTN_INLINE unsigned codeAt(const unsigned (&words)[kWords], int i) {
  int first = i * kBits / 32, shift = i * kBits % 32;
  unsigned bits = words[first] >> shift;
  if (shift + kBits > 32) bits |= words[first + 1] << (32 - shift);
  return kBits == 32 ? bits : bits & ((1u << (kBits % 32)) - 1u);
}

// Of an E2M1 code, times 2; of an E2M3 code, times 8.
template <int kRecipe>
MXATTN_INLINE int integerOf(unsigned code) {
  constexpr int kMantissa = kRecipe == kMxfp4 ? 1 : 3;
  unsigned magnitude = code & ((4u << kMantissa) - 1u), exponent = magnitude >> kMantissa;
  unsigned significand = (magnitude & ((1u << kMantissa) - 1u)) | (exponent ? 1u << kMantissa : 0u);
  int n = static_cast<int>(exponent ? significand << (exponent - 1u) : significand);
  return code >> (kMantissa + 2) ? -n : n;
}

// Value of an element under a scale of 1.
template <int kRecipe>
MXATTN_INLINE float elementOf(unsigned code) {
  if constexpr (kRecipe == kFloat32) {
    return fromBits(code);
  } else if constexpr (kRecipe == kMxfp8) {
    return floatOfE4m3(code);
  } else {
    return static_cast<float>(integerOf<kRecipe>(code)) * (kRecipe == kMxfp4 ? 0.5f : 0.125f);
  }
}

// A block as signed bytes for 8-bit products. They may lie in another order than the elements: that of element i is byte
// byteOf(i), and the other operand of a product must have its own there.
template <int kRecipe>
struct ByteElements;

template <>
struct ByteElements<kMxfp6> {
  MXATTN_INLINE static constexpr int byteOf(int i) { return i; }
  MXATTN_INLINE static void unpack(const unsigned (&packed)[6], unsigned (&bytes)[8]) {
    MXATTN_UNROLL
    for (int w = 0; w < 8; w++) {
      int n[4];
      MXATTN_UNROLL
      for (int i = 0; i < 4; i++) n[i] = integerOf<kMxfp6>(codeAt<6>(packed, 4 * w + i));
      bytes[w] = word4(n);
    }
  }
};

// Eight nibbles at once: the even elements of a word become one word of bytes, the odd ones the next.
template <>
struct ByteElements<kMxfp4> {
  MXATTN_INLINE static constexpr int byteOf(int i) { return i / 8 * 8 + i % 2 * 4 + i % 8 / 2; }
  MXATTN_INLINE static void unpack(const unsigned (&packed)[4], unsigned (&bytes)[8]) {
    MXATTN_UNROLL
    for (int w = 0; w < 4; w++) {
      // The bits of 0 1 2 3 4 6 8 12 by those of the code.
      unsigned word = packed[w];
      unsigned b0 = word & 0x11111111u, b1 = word >> 1 & 0x11111111u, b2 = word >> 2 & 0x11111111u;
      unsigned eight = b2 & b1, four = b2 & (b0 | ~b1), two = (b2 & ~b1 & b0) | (~b2 & b1), one = ~b2 & b0;
      unsigned magnitudes = eight << 3 | four << 2 | two << 1 | one, signs = word >> 3 & 0x11111111u;
      bytes[2 * w] = negated(magnitudes & 0x0f0f0f0fu, signs & 0x01010101u);
      bytes[2 * w + 1] = negated(magnitudes >> 4 & 0x0f0f0f0fu, signs >> 4 & 0x01010101u);
    }
  }

 private:
  // Bytes negated where `signs` has a 1. Zeros have none.
  MXATTN_INLINE static unsigned negated(unsigned bytes, unsigned signs) { return (bytes ^ signs * 255u) + signs; }
};

}  // namespace mxattn::hip::kernels
