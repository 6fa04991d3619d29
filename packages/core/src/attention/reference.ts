import type { Reals } from '../formats/block.js';
import { addWeighted, dotRows } from '../softmax/matrix.js';
import { type HeadKernel, outputLength, runHeads } from './heads.js';
import type { AttentionSpec } from './spec.js';
import { type AttentionTensors, checkTensors } from './tensors.js';

/**
 * Attention in float64, as the spec defines it: out = softmax(mask(softcap(scale * Q K^T) + bias)) V.
 * A row without a visible key gives zeros.
 *
 * @param output where the result goes, for instance a Float64Array; default a new Float32Array.
 * @returns output: [batch, heads, queryLength, valueHeadSize], or BSHD in that layout.
 * @throws MxattnError if a tensor does not fit the spec.
 */
export function referenceAttention<T extends Reals = Float32Array>(
  tensors: AttentionTensors,
  spec: AttentionSpec,
  output: T = new Float32Array(outputLength(spec)) as T,
): T {
  checkTensors(tensors, spec);
  const { headSize, scale } = spec;
  const kernel: HeadKernel = {
    unit: 1,
    prepareQuery: (rows) => {
      for (let i = 0; i < rows.length; i++) rows[i] = rows[i]! * scale;
    },
    prepareKey: () => {},
    prepareValue: () => {},
    score: (query, start, keys, begin, end, scores) =>
      dotRows(query, start, keys, headSize, begin, end, scores),
    reduce(scores, begin, end, values, sink, out) {
      out.fill(0);
      let max = -Infinity;
      for (let j = begin; j < end; j++) max = Math.max(max, scores[j]!);
      if (max === -Infinity) return;
      max = Math.max(max, sink);
      let sum = Math.exp(sink - max);
      for (let j = begin; j < end; j++) {
        scores[j] = Math.exp(scores[j]! - max);
        sum += scores[j]!;
      }
      addWeighted(scores.subarray(begin, end), end - begin, values, begin, out);
      for (let c = 0; c < out.length; c++) out[c] = out[c]! / sum;
    },
  };
  runHeads(tensors, spec, kernel, output);
  return output;
}
