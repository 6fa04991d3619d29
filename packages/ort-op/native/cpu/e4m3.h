// E4M3 elements (OCP 8-bit floating point, bias 7): floats in, one byte in every 32-bit lane out, and back.

// Of numbers that `elements` has rounded.
MXATTN_INLINE Ints e4m3Codes(Floats x) {
  Ints sign = (bits(x) >> 24) & 0x80;
  Floats positive = magnitude(x);
  // Below 2^-6 the code counts steps of 2^-9; above, it is the top of the float with another bias.
  Ints subnormal = toInts(positive * 0x1p9f);
  Ints normal = (bits(positive) >> 20) - ((127 - 7) << 3);
  return (positive < 0x1p-6f ? subnormal : normal) | sign;
}

MXATTN_INLINE Floats e4m3Values(Ints codes) {
  Ints significand = (codes & 0x7f) << 20;
  // A subnormal takes the exponent of the smallest normal number and loses the leading one.
  Floats subnormal = fromBits(significand + (121 << 23)) - 0x1p-6f;
  Floats normal = fromBits(significand + (120 << 23));
  Floats positive = significand < (1 << 23) ? subnormal : normal;
  return fromBits(bits(positive) | ((codes & 0x80) << 24));
}
