// MX elements (OCP Microscaling v1.0) of the recipes: blocks of 32 share an E8M0 scale. Rounded to nearest even, saturated.
#pragma once

namespace mxattn::hip::kernels {

struct ElementFormat {
  // Added to the bits of the largest magnitude before its exponent is taken. 0 for the scale rule `floor`; for `ceil` what
  // carries into the exponent where the magnitude is above the format's largest there.
  unsigned scaleCarry;
  int largestExponent;
  // 1.5 * 2^23 over the number of steps in [1, 2): adding it, times the element's power of two, rounds to a step.
  float roundingMagic;
  // From here down elements are equidistant.
  float smallestNormal;
  float largest;
  // Makes an integer of at most 60 of an element; 0 where none fits a byte.
  float toInteger;
};

// Of the rows (queries, keys) or the values of a recipe. E2M3 scales are rounded down, E2M1 scales up, those of E4M3 rows by the
// rule even2, which rounds the magnitude to two significant bits first, those of E4M3 values up.
MXATTN_INLINE constexpr ElementFormat elementFormat(int recipe, bool values) {
  constexpr float kTwo20 = 1048576.f;
  if (recipe == kMxfp6) return {0, 2, 1.5f * kTwo20, 1.f, 7.5f, 8.f};
  if (recipe == kMxfp4) return {0x3fffff, 2, 1.5f * 4 * kTwo20, 1.f, 6.f, 2.f};
  return {values ? 0x1fffffu : 0x200000u, 8, 1.5f * kTwo20, 0.015625f, 448.f, 0.f};
}

// E8M0 code of the scale of a block whose largest magnitude has these bits; 255 for a block with NaN or an infinity.
MXATTN_INLINE int scaleCode(unsigned largest, const ElementFormat& format) {
  if (largest >= 0x7f800000u) return 255;
  return larger(static_cast<int>((largest + format.scaleCarry) >> 23) - format.largestExponent, 0);
}

// 2^e of an E8M0 code; 2^-127 is a subnormal.
MXATTN_INLINE float scaleOf(int code) {
  return fromBits(code == 255 ? 0x7fc00000u : code == 0 ? 0x00400000u : static_cast<unsigned>(code) << 23);
}

MXATTN_INLINE float inverseScaleOf(int code) { return fromBits(static_cast<unsigned>(254 - smaller(code, 254)) << 23); }

// The element nearest to x.
MXATTN_INLINE float rounded(float x, const ElementFormat& format) {
  float power = maximum(fromBits(bitsOf(x) & 0x7f800000u), format.smallestNormal);
  float magic = power * format.roundingMagic;
  return maximum(minimum((x + magic) - magic, format.largest), -format.largest);
}

// Code of an E2M1 element by its integer (0 1 2 3 4 6 8 12, negative too); zero has no sign.
MXATTN_INLINE unsigned e2m1Code(int n) {
  int magnitude = n < 0 ? -n : n;
  int code = magnitude < 4 ? magnitude : smaller(4 + (magnitude - 4) / 2, 7);
  return static_cast<unsigned>(n < 0 ? code | 8 : code);
}

// Code of an E2M3 element by its integer: steps of 1 to 16, of 2 to 32, of 4 to 60.
MXATTN_INLINE unsigned e2m3Code(int n) {
  int magnitude = n < 0 ? -n : n;
  int code = magnitude < 16 ? magnitude : magnitude < 32 ? 8 + magnitude / 2 : 16 + magnitude / 4;
  return static_cast<unsigned>(n < 0 ? code | 32 : code);
}

// Code of a rounded E4M3 element.
MXATTN_INLINE unsigned e4m3Code(float x) {
  unsigned bits = bitsOf(x), sign = bits >> 24 & 0x80u;
  float magnitude = fromBits(bits & 0x7fffffffu);
  if (magnitude < 0.015625f) return sign | static_cast<unsigned>(static_cast<int>(magnitude * 512.f));
  return sign | (((bits & 0x7fffffffu) >> 20) - (120u << 3));
}

MXATTN_INLINE float floatOfE4m3(unsigned code) {
  unsigned exponent = code >> 3 & 15u, mantissa = code & 7u;
  float magnitude = exponent ? fromBits((exponent + 120u) << 23 | mantissa << 20) : static_cast<float>(mantissa) * (1.f / 512);
  return code & 0x80u ? -magnitude : magnitude;
}

}  // namespace mxattn::hip::kernels
