const float32 = new Float32Array(1);
const bits32 = new Uint32Array(float32.buffer);

/** Bits of x rounded to bfloat16, ties to even; overflow becomes infinity, NaN stays NaN. */
export function toBf16(x: number): number {
  float32[0] = x;
  const bits = bits32[0]!;
  if (Number.isNaN(x)) return (bits >>> 16) | 0x40;
  return (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16;
}

/** Value of bfloat16 bits. */
export function fromBf16(bits: number): number {
  bits32[0] = bits << 16;
  return float32[0]!;
}

/** Bits of x rounded to IEEE binary16, ties to even; overflow becomes infinity, NaN stays NaN. */
export function toF16(x: number): number {
  float32[0] = x;
  const bits = bits32[0]!;
  const sign = (bits >>> 16) & 0x8000;
  const magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00;
  // 65520 lies half way between 65504 and the next power of two: it rounds to infinity.
  if (magnitude >= 0x477ff000) return sign | 0x7c00;
  if (magnitude < 0x38800000) {
    // Subnormal results are multiples of 2^-24; adding 0.5 puts that unit at float32's last place.
    float32[0] = Math.abs(x) + 0.5;
    return sign | (bits32[0]! - 0x3f000000);
  }
  return sign | ((magnitude - 0x38000000 + 0xfff + ((magnitude >>> 13) & 1)) >>> 13);
}

/** Value of IEEE binary16 bits. */
export function fromF16(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >>> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 0x1f) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}
