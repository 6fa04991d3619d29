const float64 = new Float64Array(1);
const words = new Uint32Array(float64.buffer);
// Index of the word that holds sign and exponent; 1 on every little-endian engine.
const HIGH = new Uint8Array(new Uint16Array([1]).buffer)[0] === 1 ? 1 : 0;

/** floor(log2 |x|) of a normal float64, read from its bits; -1023 for zero and subnormal numbers. */
export function exponentOf(x: number): number {
  float64[0] = x;
  return ((words[HIGH]! >>> 20) & 0x7ff) - 1023;
}

/** 2^exponent, exactly, for integers from -1022 to 1023. */
export function powerOfTwo(exponent: number): number {
  words[1 - HIGH] = 0;
  words[HIGH] = (exponent + 1023) << 20;
  return float64[0]!;
}

const TO_INTEGER = 2 ** 52;

/** Rounds 0 <= x < 2^52 to the nearest integer, ties to even. */
export function roundEven(x: number): number {
  return x + TO_INTEGER - TO_INTEGER;
}
