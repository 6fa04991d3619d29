import type { Reals } from '../formats/block.js';
import { adjustScores, visibleKeys } from './scores.js';
import type { AttentionSpec } from './spec.js';
import { type AttentionTensors, gatherHead, headStride } from './tensors.js';

/** The largest finite float32. */
const FLOAT32_MAX = (2 - 2 ** -23) * 2 ** 127;

/** What is left to an implementation of attention: its operands, its scores, its softmax. */
export interface HeadKernel {
  /** Units of a score per nat: 1, or log2(e) for log2 units. */
  readonly unit: number;
  /** Prepares contiguous float64 rows of one head, in place. */
  prepareQuery(rows: Float64Array): void;
  prepareKey(rows: Float64Array): void;
  prepareValue(rows: Float64Array): void;
  /** scores[j] = query row . key j, for begin <= j < end. */
  score(
    query: Float64Array,
    queryStart: number,
    keys: Float64Array,
    begin: number,
    end: number,
    scores: Float64Array,
  ): void;
  /** Writes one output row from its scores; `row` counts query rows in the order [batch, head, query]. */
  reduce(
    scores: Float64Array,
    begin: number,
    end: number,
    values: Float64Array,
    sink: number,
    out: Float64Array,
    row: number,
  ): void;
}

/** Elements of an attention's output. */
export function outputLength(spec: AttentionSpec): number {
  return spec.batch * spec.heads * spec.queryLength * spec.valueHeadSize;
}

/** Runs a kernel over every row of every head: layouts, grouped heads, masks, bias and sinks. */
export function runHeads(
  tensors: AttentionTensors,
  spec: AttentionSpec,
  kernel: HeadKernel,
  output: Reals,
): void {
  const { batch, heads, kvHeads, queryLength, keyLength, headSize, valueHeadSize, layout } = spec;
  const capacity = spec.keyCapacity ?? keyLength;
  output.fill(0);
  const scores = new Float64Array(keyLength);
  const out = new Float64Array(valueHeadSize);
  const group = heads / kvHeads;
  for (let b = 0; b < batch; b++) {
    for (let kvHead = 0; kvHead < kvHeads; kvHead++) {
      const keys = gatherHead(tensors.key, layout, kvHeads, keyLength, headSize, b, kvHead, capacity);
      const values = gatherHead(
        tensors.value,
        layout,
        kvHeads,
        keyLength,
        valueHeadSize,
        b,
        kvHead,
        capacity,
      );
      kernel.prepareKey(keys);
      kernel.prepareValue(values);
      for (let head = kvHead * group; head < (kvHead + 1) * group; head++) {
        const queries = gatherHead(tensors.query, layout, heads, queryLength, headSize, b, head);
        kernel.prepareQuery(queries);
        const sink = tensors.sinks ? tensors.sinks[head]! * kernel.unit : -Infinity;
        const { start, stride } = headStride(layout, heads, queryLength, valueHeadSize, b, head);
        for (let i = 0; i < queryLength; i++) {
          const { begin, end } = visibleKeys(spec, i);
          if (end <= begin) continue;
          kernel.score(queries, i * headSize, keys, begin, end, scores);
          adjustScores(scores, begin, end, spec, tensors, kernel.unit, b, head, i);
          kernel.reduce(scores, begin, end, values, sink, out, (b * heads + head) * queryLength + i);
          for (let c = 0; c < valueHeadSize; c++) {
            const value = out[c]!;
            // A rounded V may lie a step above the largest float32; its attention output is still finite.
            output[start + i * stride + c] = Number.isFinite(value)
              ? Math.min(Math.max(value, -FLOAT32_MAX), FLOAT32_MAX)
              : value;
          }
        }
      }
    }
  }
}
