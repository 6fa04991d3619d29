import { runHeads } from '../attention/heads.js';
import type { AttentionSpec } from '../attention/spec.js';
import { type AttentionTensors, checkTensors } from '../attention/tensors.js';
import { dotRows } from '../softmax/matrix.js';

/** Score rows of one head and the values they weigh. */
export interface ScoreSample {
  /** [rows][keys], in log2 units; -Infinity where masked. */
  readonly scores: Float64Array;
  readonly rows: number;
  readonly keys: number;
  /** [keys][channels] */
  readonly values: Float64Array;
  readonly channels: number;
}

/**
 * The scores that an attention computes, one sample per batch and head: what {@link calibrate} works on.
 * Capture Q, K and V in a model to calibrate for it.
 *
 * @throws MxattnError if a tensor does not fit the spec.
 */
export function scoreSamples(tensors: AttentionTensors, spec: AttentionSpec): ScoreSample[] {
  checkTensors(tensors, spec);
  const { headSize, valueHeadSize: channels, queryLength: rows, keyLength: keys } = spec;
  const fold = spec.scale * Math.LOG2E;
  const samples: ScoreSample[] = [];
  const kernel = {
    unit: Math.LOG2E,
    prepareQuery(query: Float64Array) {
      for (let i = 0; i < query.length; i++) query[i] = query[i]! * fold;
    },
    prepareKey: () => {},
    prepareValue: () => {},
    score: (
      query: Float64Array,
      start: number,
      key: Float64Array,
      begin: number,
      end: number,
      scores: Float64Array,
    ) => dotRows(query, start, key, headSize, begin, end, scores),
    reduce(
      scores: Float64Array,
      begin: number,
      end: number,
      values: Float64Array,
      _sink: number,
      _out: Float64Array,
      row: number,
    ) {
      const head = Math.floor(row / rows);
      samples[head] ??= {
        scores: new Float64Array(rows * keys).fill(-Infinity),
        rows,
        keys,
        values,
        channels,
      };
      samples[head].scores.set(scores.subarray(begin, end), (row % rows) * keys + begin);
    },
  };
  runHeads(tensors, spec, kernel, new Float32Array(spec.batch * spec.heads * rows * channels));
  // A head whose rows are all masked leaves a hole.
  return samples.filter(Boolean);
}
