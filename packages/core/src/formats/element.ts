import { exponentOf, powerOfTwo, roundEven } from './bits.js';

/** Names of the element formats of OCP Microscaling v1.0, section 5.3. */
export type ElementName = 'e4m3' | 'e5m2' | 'e2m3' | 'e3m2' | 'e2m1';

/**
 * How a value between two neighbours of a format is rounded. `even` is round to nearest, ties to even;
 * `ties-low` is round to nearest with ties toward zero.
 */
export type Rounding = 'even' | 'ties-low';

/** A sign-magnitude floating-point element of 4, 6 or 8 bits. */
export interface ElementFormat {
  readonly name: ElementName;
  /** Bits of a code: sign, exponent, mantissa. */
  readonly bits: number;
  readonly exponentBits: number;
  readonly mantissaBits: number;
  readonly bias: number;
  /** Exponent of the largest finite value, which the block scale rules aim at. */
  readonly maxExponent: number;
  /** Largest finite value; larger ones saturate to it. */
  readonly max: number;
  /** Value of every code, indexed by the code. */
  readonly values: Float64Array;
}

interface Layout {
  name: ElementName;
  exponentBits: number;
  mantissaBits: number;
  bias: number;
  /** Codes of the largest magnitudes that are no finite numbers: none, E4M3's NaN, or IEEE's Inf and NaNs. */
  specials: 'none' | 'nan' | 'ieee';
}

function elementFormat({ name, exponentBits, mantissaBits, bias, specials }: Layout): ElementFormat {
  const bits = 1 + exponentBits + mantissaBits;
  const magnitudes = 2 ** (bits - 1);
  const specialCodes = { none: 0, nan: 1, ieee: 2 ** mantissaBits }[specials];
  const values = new Float64Array(2 * magnitudes);
  for (let code = 0; code < magnitudes; code++) {
    const exponent = code >> mantissaBits;
    const fraction = (code % 2 ** mantissaBits) / 2 ** mantissaBits;
    let value = exponent === 0 ? fraction * 2 ** (1 - bias) : (1 + fraction) * 2 ** (exponent - bias);
    if (code >= magnitudes - specialCodes) value = specials === 'ieee' && fraction === 0 ? Infinity : NaN;
    values[code] = value;
    values[code + magnitudes] = -value;
  }
  const max = values[magnitudes - specialCodes - 1]!;
  return {
    name,
    bits,
    exponentBits,
    mantissaBits,
    bias,
    maxExponent: exponentOf(max),
    max,
    values,
  };
}

/** Every element format by its name (OCP Microscaling v1.0, section 5.3). */
export const elementFormats: Readonly<Record<ElementName, ElementFormat>> = {
  e4m3: elementFormat({ name: 'e4m3', exponentBits: 4, mantissaBits: 3, bias: 7, specials: 'nan' }),
  e5m2: elementFormat({ name: 'e5m2', exponentBits: 5, mantissaBits: 2, bias: 15, specials: 'ieee' }),
  e2m3: elementFormat({ name: 'e2m3', exponentBits: 2, mantissaBits: 3, bias: 1, specials: 'none' }),
  e3m2: elementFormat({ name: 'e3m2', exponentBits: 3, mantissaBits: 2, bias: 3, specials: 'none' }),
  e2m1: elementFormat({ name: 'e2m1', exponentBits: 2, mantissaBits: 1, bias: 1, specials: 'none' }),
};

/**
 * Code of the format's value nearest to x; beyond the largest finite value, infinities included, it
 * saturates. NaN becomes the format's NaN and, where the format has none, zero: in an MX block the shared
 * scale carries the NaN.
 */
export function encodeElement(format: ElementFormat, x: number, rounding: Rounding = 'even'): number {
  const sign = x < 0 || Object.is(x, -0) ? 1 << (format.bits - 1) : 0;
  if (Number.isNaN(x)) return format.bits === 8 ? 0x7f : 0;
  const magnitude = Math.min(Math.abs(x), format.max);
  const smallest = 1 - format.bias;
  const exponent = Math.max(exponentOf(magnitude), smallest);
  const steps = magnitude * powerOfTwo(format.mantissaBits - exponent);
  const significand = rounding === 'even' ? roundEven(steps) : Math.ceil(steps - 0.5);
  // A significand that rounds up to the next power of two carries into the exponent field by itself.
  return sign | (((exponent - smallest) << format.mantissaBits) + significand);
}

/** Value of a code. */
export function decodeElement(format: ElementFormat, code: number): number {
  return format.values[code]!;
}

/** Encodes every value into `codes`, one code per byte. */
export function encodeElements(
  format: ElementFormat,
  values: ArrayLike<number>,
  codes: Uint8Array = new Uint8Array(values.length),
  rounding: Rounding = 'even',
): Uint8Array {
  for (let i = 0; i < values.length; i++) codes[i] = encodeElement(format, values[i]!, rounding);
  return codes;
}

/** Decodes one code per byte into `values`. */
export function decodeElements(
  format: ElementFormat,
  codes: Uint8Array,
  values: Float32Array = new Float32Array(codes.length),
): Float32Array {
  for (let i = 0; i < codes.length; i++) values[i] = format.values[codes[i]!]!;
  return values;
}
