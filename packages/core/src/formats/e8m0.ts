import { powerOfTwo } from './bits.js';

/** Code of an E8M0 scale that makes its whole block NaN. */
export const E8M0_NAN = 0xff;

/** E8M0 code of 2^exponent; exponents beyond -127..127 are clamped (OCP Microscaling v1.0, section 5.4). */
export function encodeE8m0(exponent: number): number {
  return Math.min(Math.max(exponent, -127), 127) + 127;
}

/** Value of an E8M0 code: a power of two, or NaN for 0xFF. */
export function decodeE8m0(code: number): number {
  return code === E8M0_NAN ? NaN : powerOfTwo(code - 127);
}
