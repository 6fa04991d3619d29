// IEEE binary16. Integer arithmetic alone, so that every build has it and the compiler can vectorise it.

MXATTN_INLINE float halfToFloat(uint16_t half) {
  uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  uint32_t magnitude = half & 0x7fff;
  // The exponent moves from bias 15 to 127 by a multiplication, which normalises subnormals, too.
  uint32_t shifted = magnitude << 13;
  float value;
  std::memcpy(&value, &shifted, 4);
  value *= 0x1p112f;
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  if (magnitude >= 0x7c00) bits = shifted | 0x7f800000;
  bits |= sign;
  std::memcpy(&value, &bits, 4);
  return value;
}

MXATTN_INLINE uint16_t floatToHalf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  uint32_t sign = bits >> 16 & 0x8000;
  uint32_t magnitude = bits & 0x7fffffff;
  uint32_t half;
  if (magnitude >= 0x7f800000) {
    half = magnitude > 0x7f800000 ? 0x7e00 : 0x7c00;
  } else if (magnitude >= 0x477ff000) {
    half = 0x7c00;  // 65520 and above round to infinity
  } else if (magnitude < 0x38800000) {
    // Below 2^-14: adding 1/2 leaves the multiple of 2^-24 in the low bits, rounded to even.
    float f;
    std::memcpy(&f, &magnitude, 4);
    f += 0.5f;
    uint32_t rounded;
    std::memcpy(&rounded, &f, 4);
    half = rounded - 0x3f000000;
  } else {
    half = (magnitude + 0xfff + (magnitude >> 13 & 1) - 0x38000000) >> 13;
  }
  return static_cast<uint16_t>(sign | half);
}

void fromHalf(const uint16_t* from, float* to, size_t count) {
  for (size_t i = 0; i < count; i++) to[i] = halfToFloat(from[i]);
}

void toHalf(const float* from, uint16_t* to, size_t count) {
  for (size_t i = 0; i < count; i++) to[i] = floatToHalf(from[i]);
}
