import { powerOfTwo, roundEven } from '../formats/bits.js';
import { blockScale } from '../formats/block.js';
import { decodeE8m0 } from '../formats/e8m0.js';
import { elementFormats, encodeElement } from '../formats/element.js';
import { fromBf16 } from '../formats/half.js';
import { BLOCK_SIZE } from '../formats/view.js';
import type { Arithmetic, Exponential, WeightOperand, WeightRule } from './pipeline.js';

/**
 * Turns the first `count` shifted scores of a tile (log2 units; -Infinity where masked) into weights, in place.
 * Tiles start at a multiple of 32 keys. Returns how many weights were clipped to the top of their format.
 */
export type WeightStage = (tile: Float64Array, count: number) => number;

/** The weight stage of a rule. */
export function weightStage(rule: WeightRule, arithmetic: Arithmetic): WeightStage {
  switch (rule.kind) {
    case 'exponential':
      return sequence(exponentialStage(rule.exponential, arithmetic), operandStage(rule.operand));
    case 'direct':
      return directStage(rule);
    case 'efq':
      return efqStage(rule.tau, rule.step, rule.table);
  }
}

function sequence(first: WeightStage, second: WeightStage | null): WeightStage {
  if (!second) return first;
  return (tile, count) => first(tile, count) + second(tile, count);
}

// Bits of the largest finite numbers.
const LARGEST_BF16 = 0x7f7f;
const LARGEST_F32 = 0x7f7fffff;

const float32 = new Float32Array(1);
const bits32 = new Uint32Array(float32.buffer);

function fromF32(bits: number): number {
  bits32[0] = bits;
  return float32[0]!;
}

function exponentialStage(exponential: Exponential, arithmetic: Arithmetic): WeightStage {
  const round = arithmetic === 'f32' ? Math.fround : (x: number) => x;
  if (exponential.kind === 'exact') {
    return (tile, count) => {
      for (let i = 0; i < count; i++) tile[i] = round(2 ** tile[i]!);
      return 0;
    };
  }
  const offset = (127 - exponential.correction) * 2 ** 23;
  const narrow = exponential.stage === 'f32' ? 1 : 2 ** 16;
  const largest = exponential.stage === 'f32' ? LARGEST_F32 : LARGEST_BF16;
  const decode = exponential.stage === 'f32' ? fromF32 : fromBf16;
  return (tile, count) => {
    let saturated = 0;
    for (let i = 0; i < count; i++) {
      const x = tile[i]!;
      if (Number.isNaN(x)) continue;
      const affine = x * 2 ** 23 + offset;
      // On the way to bfloat16 kernels add the offset to an integer; as a float32 the sum loses up to 6 bits.
      const bits = roundEven(Math.max(0, narrow === 1 ? round(affine) : affine) / narrow);
      if (bits > largest) saturated++;
      tile[i] = decode(Math.min(bits, largest));
    }
    return saturated;
  };
}

function operandStage(operand: WeightOperand | null): WeightStage | null {
  if (!operand) return null;
  const format = elementFormats[operand.format];
  const { scale } = operand;
  return (tile, count) => {
    let saturated = 0;
    for (let first = 0; first < count; first += BLOCK_SIZE) {
      const size = Math.min(BLOCK_SIZE, count - first);
      const step =
        typeof scale === 'string'
          ? decodeE8m0(blockScale(format, scale, tile, first, size, 1))
          : powerOfTwo(scale.exponent);
      for (let i = first; i < first + size; i++) {
        const value = tile[i]! / step;
        if (value > format.max) saturated++;
        // NaN stays NaN also in formats that have none.
        tile[i] = Number.isNaN(value) ? NaN : format.values[encodeElement(format, value)]! * step;
      }
    }
    return saturated;
  };
}

function blockMaximum(tile: Float64Array, first: number, end: number): number {
  let max = -Infinity;
  for (let i = first; i < end; i++) max = Math.max(max, tile[i]!);
  return max;
}

function directStage(rule: Extract<WeightRule, { kind: 'direct' }>): WeightStage {
  const { bias, mantissaBits, maxExponent, values, max } = elementFormats[rule.format];
  const { shift, correction, blocks = false, pieces = 1 } = rule;
  const steps = 2 ** mantissaBits;
  const top = values.indexOf(max);
  return (tile, count) => {
    let saturated = 0;
    for (let first = 0; first < count; first += BLOCK_SIZE) {
      const end = Math.min(first + BLOCK_SIZE, count);
      const highest = blocks ? blockMaximum(tile, first, end) + shift : 0;
      const exponent =
        Number.isFinite(highest) && blocks ? Math.max(Math.floor(highest) - maxExponent, -127) : 0;
      const scale = powerOfTwo(exponent);
      for (let i = first; i < end; i++) {
        const r = tile[i]! + shift - exponent;
        if (Number.isNaN(r)) continue;
        let affine = steps * (r + bias - correction);
        if (pieces === 2) affine = Math.max(affine, steps * (0.25 * (r - 1 + bias) + 0.75));
        const code = roundEven(Math.max(0, affine));
        if (code > top) saturated++;
        tile[i] = values[Math.min(code, top)]! * scale;
      }
    }
    return saturated;
  };
}

const IDENTITY = [0, 1, 2, 3, 4, 5, 6, 7] as const;

function efqStage(tau: number, step: number, table: readonly number[] = IDENTITY): WeightStage {
  const { values } = elementFormats.e2m1;
  const weights = Float64Array.from(table, (code) => values[code]!);
  const top = weights.length - 1;
  return (tile, count) => {
    for (let first = 0; first < count; first += BLOCK_SIZE) {
      const end = Math.min(first + BLOCK_SIZE, count);
      const max = blockMaximum(tile, first, end);
      if (max === -Infinity) {
        tile.fill(0, first, end);
        continue;
      }
      // The scale is an E8M0 number; weights below its range vanish.
      const exponent = Math.max(Math.floor(max) - 2, -127);
      const scale = powerOfTwo(exponent);
      for (let i = first; i < end; i++) {
        const index = Math.floor((tile[i]! - exponent - tau) / step);
        tile[i] = Number.isNaN(index) ? NaN : weights[Math.min(Math.max(index, 0), top)]! * scale;
      }
    }
    return 0;
  };
}
