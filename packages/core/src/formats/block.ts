import { powerOfTwo } from './bits.js';
import { E8M0_NAN, encodeE8m0 } from './e8m0.js';
import {
  type ElementFormat,
  type ElementName,
  elementFormats,
  encodeElement,
  type Rounding,
} from './element.js';
import { type ScaleRule, sharedExponent } from './scale.js';
import { BLOCK_SIZE, type LineView } from './view.js';

/** Arrays whose numbers can be quantised and written back. */
export type Reals = Float32Array | Float64Array;

/** How values become MX blocks. */
export interface BlockScheme {
  readonly format: ElementName;
  readonly rule: ScaleRule;
  /** Default `even`. */
  readonly rounding?: Rounding;
}

/** MX blocks of a tensor: the lines of a view, each padded with zeros to whole blocks. */
export interface BlockTensor {
  readonly format: ElementName;
  readonly lines: number;
  readonly blocksPerLine: number;
  /** One element code per byte, [line][block][32]. */
  readonly codes: Uint8Array;
  /** One E8M0 code per block, [line][block]. */
  readonly scales: Uint8Array;
}

/**
 * E8M0 code of the scale of `count` values at `start`, `stride` apart: 0 for a block of zeros, 0xFF (the whole
 * block is NaN) where a value is NaN or infinite.
 */
export function blockScale(
  format: ElementFormat,
  rule: ScaleRule,
  values: Reals,
  start: number,
  count: number,
  stride: number,
): number {
  let amax = 0;
  for (let i = 0, at = start; i < count; i++, at += stride) {
    const magnitude = Math.abs(values[at]!);
    // Written so that NaN, which compares false, ends the search as well.
    if (!(magnitude < Infinity)) return E8M0_NAN;
    if (magnitude > amax) amax = magnitude;
  }
  return amax === 0 ? 0 : encodeE8m0(sharedExponent(format, rule, amax));
}

/**
 * Quantises the lines of a view to MX blocks (OCP Microscaling v1.0, section 6.3).
 *
 * @param values a dense tensor that `view` describes; not modified.
 */
export function quantizeBlocks(values: Reals, view: LineView, scheme: BlockScheme): BlockTensor {
  const format = elementFormats[scheme.format];
  const rounding = scheme.rounding ?? 'even';
  const blocksPerLine = Math.ceil(view.length / BLOCK_SIZE);
  const codes = new Uint8Array(view.lines * blocksPerLine * BLOCK_SIZE);
  const scales = new Uint8Array(view.lines * blocksPerLine);
  for (let line = 0, block = 0; line < view.lines; line++) {
    const start = view.start(line);
    for (let first = 0; first < view.length; first += BLOCK_SIZE, block++) {
      const count = Math.min(BLOCK_SIZE, view.length - first);
      const from = start + first * view.stride;
      const scale = blockScale(format, scheme.rule, values, from, count, view.stride);
      scales[block] = scale;
      if (scale === E8M0_NAN) continue;
      const inverse = powerOfTwo(127 - scale);
      for (let i = 0; i < count; i++) {
        codes[block * BLOCK_SIZE + i] = encodeElement(
          format,
          values[from + i * view.stride]! * inverse,
          rounding,
        );
      }
    }
  }
  return { format: scheme.format, lines: view.lines, blocksPerLine, codes, scales };
}

/** Writes the values of MX blocks to the places that `view` names in `target`; padding is left out. */
export function dequantizeBlocks<T extends Reals>(tensor: BlockTensor, view: LineView, target: T): T {
  const { values } = elementFormats[tensor.format];
  for (let line = 0; line < view.lines; line++) {
    const start = view.start(line);
    for (let i = 0; i < view.length; i++) {
      const block = line * tensor.blocksPerLine + Math.floor(i / BLOCK_SIZE);
      const scale = tensor.scales[block]!;
      const code = tensor.codes[block * BLOCK_SIZE + (i % BLOCK_SIZE)]!;
      target[start + i * view.stride] = scale === E8M0_NAN ? NaN : values[code]! * powerOfTwo(scale - 127);
    }
  }
  return target;
}
