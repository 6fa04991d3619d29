import { type BlockScheme, elementFormats, type Recipe, recipes } from '@mxattn/core';
import type { Constants } from './compose.js';

/** What the kernels implement. */
export const webgpuRecipes: readonly Recipe[] = [
  recipes.f32,
  recipes.mxfp8,
  recipes.mxfp6,
  recipes.mxfp4,
  recipes.f6f4,
];

/** Whether operands of a recipe are too fine for 8-bit integers: they are multiplied as floats. */
export function multipliesFloats({ queryKey }: Recipe): boolean {
  return queryKey?.format === 'e4m3';
}

/** Constants of elements.wgsl for operands of this scheme. */
export function elementConstants({ format, rule }: BlockScheme): Constants {
  const { mantissaBits, max, maxExponent, bias } = elementFormats[format];
  const steps = 2 ** mantissaBits;
  const carries = { ceil: carry(max / 2 ** maxExponent, 23), even2: 0x200000, floor: 0 };
  return {
    STEPS: steps,
    LARGEST: max * steps,
    MAX_EXPONENT: maxExponent,
    // Bits of the least normal element as a float.
    LOWEST_POWER: (127 + 1 - bias) << 23,
    SCALE_CARRY: carries[rule as keyof typeof carries],
  };
}

/** Bits of an int8 below the element's last place; none for E4M3, whose elements are no 8-bit integers. */
export function spareBits({ format }: BlockScheme): number {
  const { mantissaBits, max } = elementFormats[format];
  return Math.max(0, Math.floor(Math.log2(127 / (max * 2 ** mantissaBits))));
}

/** weightCarry of problem.wgsl: weights are E2M3 in bits of bf16. */
export function weightCarry({ softmax }: Recipe): number {
  const { weights } = softmax;
  const ceil = weights.kind === 'exponential' && weights.operand?.scale === 'ceil';
  const { max, maxExponent } = elementFormats.e2m3;
  return ceil ? carry(max / 2 ** maxExponent, 7) : 0;
}

/** What, added to the bits of a significand above `largest`, carries into the exponent. */
function carry(largest: number, mantissaBits: number): number {
  return 2 ** mantissaBits - 1 - (largest - 1) * 2 ** mantissaBits;
}
