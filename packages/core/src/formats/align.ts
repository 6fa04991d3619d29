import { powerOfTwo, roundEven } from './bits.js';
import type { BlockTensor, Reals } from './block.js';
import { E8M0_NAN } from './e8m0.js';
import { elementFormats } from './element.js';
import type { LineView } from './view.js';

/**
 * Rounds dequantised lines, in place, to what 8-bit integers under one exponent per line can hold: that of the
 * line's largest scale, with the spare bits of int8 below the element's last place. E2M1 has three, so that
 * blocks down to 2^-3 of the largest stay exact; E2M3 has one.
 *
 * @param values the values of `tensor`, written by `dequantizeBlocks` to the same view.
 */
export function alignLines(values: Reals, view: LineView, tensor: BlockTensor): void {
  const { max, bias, mantissaBits } = elementFormats[tensor.format];
  const lastPlace = powerOfTwo(1 - bias - mantissaBits);
  const spare = Math.floor(Math.log2(127 / (max / lastPlace)));
  for (let line = 0; line < view.lines; line++) {
    let largest = 0;
    for (let block = 0; block < tensor.blocksPerLine; block++) {
      const scale = tensor.scales[line * tensor.blocksPerLine + block]!;
      if (scale !== E8M0_NAN) largest = Math.max(largest, scale);
    }
    const unit = lastPlace * powerOfTwo(largest - 127 - spare);
    const start = view.start(line);
    for (let i = 0; i < view.length; i++) {
      const at = start + i * view.stride;
      const value = values[at]!;
      values[at] = Math.sign(value) * roundEven(Math.abs(value) / unit) * unit;
    }
  }
}
