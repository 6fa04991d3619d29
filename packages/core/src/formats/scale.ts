import { exponentOf, powerOfTwo } from './bits.js';
import type { ElementFormat } from './element.js';

/**
 * How the shared exponent of a block follows from amax, its largest magnitude, and the largest exponent
 * emax of the element format:
 * - `floor`: floor(log2 amax) - emax, the rule of OCP Microscaling v1.0; the largest values may saturate.
 * - `ceil`: the smallest exponent with which nothing saturates.
 * - `even`: floor after adding half a unit in the last place of the element's significand to amax.
 * - `even2`: floor after adding 0x200000 to the float32 bits of amax: 1.75 and more round up, whatever the
 *   element format.
 * - `near`: the power of two nearest to amax, minus emax: 1.5 and more round up.
 */
export type ScaleRule = 'floor' | 'ceil' | 'even' | 'even2' | 'near';

const float32 = new Float32Array(1);
const bits32 = new Uint32Array(float32.buffer);

function addToBits(x: number, increment: number): number {
  float32[0] = x;
  bits32[0] = bits32[0]! + increment;
  return float32[0]!;
}

/** Shared exponent of a block whose largest magnitude is `amax`: finite, above zero. Not clamped to E8M0. */
export function sharedExponent(format: ElementFormat, rule: ScaleRule, amax: number): number {
  switch (rule) {
    case 'floor':
      return exponentOf(amax) - format.maxExponent;
    case 'ceil': {
      const exponent = exponentOf(amax) - format.maxExponent;
      return amax > format.max * powerOfTwo(exponent) ? exponent + 1 : exponent;
    }
    case 'even':
      return exponentOf(addToBits(amax, 1 << (22 - format.mantissaBits))) - format.maxExponent;
    case 'even2':
      return exponentOf(addToBits(amax, 0x200000)) - format.maxExponent;
    case 'near':
      return exponentOf(addToBits(amax, 0x400000)) - format.maxExponent;
  }
}
