import type { ElementName } from '../formats/element.js';
import type { ScaleRule } from '../formats/scale.js';

/** Arithmetic of scores, softmax state and accumulators; operands and weights are exact in both. */
export type Arithmetic = 'f64' | 'f32';

/**
 * The reference m that is subtracted from the scores of a row, all in log2 units:
 * - `row`: the maximum of the whole row, found before the first weight (two passes).
 * - `running`: the maximum so far; output and sum are rescaled whenever it rises (online softmax).
 * - `frozen`: the maximum of the first tile that has a finite score, kept after that. A tile with a score more
 *   than `rollback` above it raises the reference to the tile's maximum and rescales output and sum; null never
 *   does, so that late high scores saturate.
 */
export type Reference =
  | { readonly kind: 'row' }
  | { readonly kind: 'running' }
  | { readonly kind: 'frozen'; readonly rollback: number | null };

/**
 * How 2^x is computed: exactly, or by Schraudolph's affine map, the float32 whose bits are
 * 2^23 * (x + 127 - correction), rounded to bfloat16 (unless `stage` says otherwise).
 */
export type Exponential =
  | { readonly kind: 'exact' }
  | { readonly kind: 'schraudolph'; readonly correction: number; readonly stage?: 'bf16' | 'f32' };

/** The format of the weights as an operand of the product with V. */
export interface WeightOperand {
  readonly format: ElementName;
  /** A scale rule per block of 32 keys, or one fixed scale 2^exponent. */
  readonly scale: ScaleRule | { readonly exponent: number };
}

/**
 * How a weight P, near 2^x, follows from a shifted score x = s - m:
 * - `exponential`: computed as a number, then rounded to the operand's format (null: not rounded).
 * - `direct`: the bits of the element are the rounded affine value 2^mantissaBits * (x + shift + bias -
 *   correction): Schraudolph's map straight to the element, whose weight at the reference is 2^shift. With
 *   `blocks`, x is taken relative to an exponent per block of 32 keys that puts the block's maximum into the
 *   topmost binade, which is then also its scale; with two `pieces`, a second affine value follows 2^x where the
 *   element is subnormal, and the larger of the two counts.
 * - `efq`: per block of 32 keys an exponent e = floor(max x) - 2, then the E2M1 code
 *   floor((x - e - tau) / step), clipped to 0..7. With a table the index is clipped to the table and the
 *   code read from it (EFQ-LUT).
 */
export type WeightRule =
  | {
      readonly kind: 'exponential';
      readonly exponential: Exponential;
      readonly operand: WeightOperand | null;
    }
  | {
      readonly kind: 'direct';
      readonly format: ElementName;
      readonly shift: number;
      readonly correction: number;
      readonly blocks?: boolean;
      readonly pieces?: 1 | 2;
    }
  | {
      readonly kind: 'efq';
      readonly tau: number;
      readonly step: number;
      readonly table?: readonly number[];
    };

/** A softmax fused into attention, as data. */
export interface SoftmaxPipeline {
  readonly reference: Reference;
  readonly weights: WeightRule;
  /** The normaliser: the sum of the same weights that multiply V, or of exact 2^x. */
  readonly sum: 'weights' | 'exact';
}

/**
 * Schraudolph's correction c: it centres the relative error of the affine map. 60801 / 2^20, the constant of
 * AMD's kernels.
 */
export const SCHRAUDOLPH_CORRECTION = 60801 / 2 ** 20;

/**
 * Height above the reference, in log2 units, at which the Schraudolph value passes 448, the largest E4M3 number:
 * its affine exponent is then 135.75 (Fused-Softmax Attention, rollback).
 */
export const ROLLBACK_THRESHOLD = 135.75 - 127 + SCHRAUDOLPH_CORRECTION;

/** Height above the reference at which a direct E4M3 code would pass 448 by rounding. */
export const DIRECT_E4M3_THRESHOLD = 8.87;

/** Conventional online softmax, its weights rounded to `operand` (null: not rounded). */
export function conventional(operand: WeightOperand | null): SoftmaxPipeline {
  return {
    reference: { kind: 'running' },
    weights: { kind: 'exponential', exponential: { kind: 'exact' }, operand },
    sum: 'weights',
  };
}

/**
 * Fused-Softmax (arXiv 2611.09225): frozen reference with rollback, Schraudolph exponential to bfloat16, weights
 * rounded to `operand`, the sum of the same weights.
 *
 * @param rollback by default the height at which a weight passes 448: times the fixed scale of the operand, if it
 *   has one.
 */
export function fused(
  operand: WeightOperand,
  rollback: number | null = ROLLBACK_THRESHOLD +
    (typeof operand.scale === 'string' ? 0 : operand.scale.exponent),
): SoftmaxPipeline {
  return {
    reference: { kind: 'frozen', rollback },
    weights: {
      kind: 'exponential',
      exponential: { kind: 'schraudolph', correction: SCHRAUDOLPH_CORRECTION },
      operand,
    },
    sum: 'weights',
  };
}

/**
 * Fused-Softmax without the bfloat16 stage: the affine value is the E4M3 code itself. The weight at the
 * reference is 2^shift and the rollback threshold lies `shift` lower.
 */
export function directE4m3(shift: number): SoftmaxPipeline {
  return {
    reference: { kind: 'frozen', rollback: DIRECT_E4M3_THRESHOLD - shift },
    weights: { kind: 'direct', format: 'e4m3', shift, correction: SCHRAUDOLPH_CORRECTION },
    sum: 'weights',
  };
}

/** EFQ-Softmax (arXiv 2609.09721): running maximum, E2M1 weights straight from the shifted scores. */
export function efq(tau: number, step: number, table?: readonly number[]): SoftmaxPipeline {
  return {
    reference: { kind: 'running' },
    weights: table ? { kind: 'efq', tau, step, table } : { kind: 'efq', tau, step },
    sum: 'weights',
  };
}
