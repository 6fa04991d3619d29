import type { Reals } from '../formats/block.js';
import { addWeighted } from './matrix.js';
import type { Arithmetic, SoftmaxPipeline } from './pipeline.js';
import { weightStage } from './weights.js';

/** What happened to one row in its softmax. */
export interface RowTrace {
  /** Times the frozen reference was raised. */
  rollbacks: number;
  /** Weights clipped to the top of their format. */
  saturations: number;
  /** Row maximum minus the final reference, in log2 units; 0 for a row without a key. */
  drift: number;
}

/** Softmax and product with V of one row of scores after another; holds the buffers. */
export interface RowSoftmax {
  /**
   * Writes the attention output of one query row.
   *
   * @param scores in log2 units, -Infinity where masked; not modified.
   * @param begin keys before it are masked and ignored.
   * @param end keys from it on are masked and ignored.
   * @param values contiguous rows of V, as long as `out`, starting with key 0.
   * @param sink an extra score, in log2 units, that only enters the sum; -Infinity for none.
   * @returns the trace of this row, valid until the next call.
   */
  run(
    scores: Float64Array,
    begin: number,
    end: number,
    values: Float64Array,
    sink: number,
    out: Float64Array,
  ): Readonly<RowTrace>;
}

/** Largest score of the range, or NaN if any is NaN. */
function maximum(scores: Float64Array, begin: number, end: number): number {
  let max = -Infinity;
  for (let j = begin; j < end; j++) {
    const s = scores[j]!;
    if (!(s <= max)) max = s;
    if (Number.isNaN(s)) return NaN;
  }
  return max;
}

/**
 * The runner of a pipeline.
 *
 * @param tile keys per step; a multiple of 32.
 * @param valueSize channels of V.
 */
export function rowSoftmax(
  pipeline: SoftmaxPipeline,
  tile: number,
  valueSize: number,
  arithmetic: Arithmetic = 'f64',
): RowSoftmax {
  const { reference, sum: sumRule } = pipeline;
  const round = arithmetic === 'f32' ? Math.fround : (x: number) => x;
  // log2 of the weight at the reference; exact terms of the sum must be as high.
  const lift = pipeline.weights.kind === 'direct' ? pipeline.weights.shift : 0;
  const weigh = weightStage(pipeline.weights, arithmetic);
  const weights = new Float64Array(tile);
  const total: Reals = arithmetic === 'f32' ? new Float32Array(valueSize) : new Float64Array(valueSize);
  const trace: RowTrace = { rollbacks: 0, saturations: 0, drift: 0 };

  function run(
    scores: Float64Array,
    begin: number,
    end: number,
    values: Float64Array,
    sink: number,
    out: Float64Array,
  ): RowTrace {
    trace.rollbacks = 0;
    trace.saturations = 0;
    total.fill(0);
    let sum = 0;
    let rowMax = -Infinity;
    let m = reference.kind === 'row' ? maximum(scores, begin, end) : -Infinity;

    for (let first = begin - (begin % tile); first < end; first += tile) {
      const count = Math.min(tile, end - first);
      const tileMax = maximum(scores, Math.max(first, begin), first + count);
      if (tileMax === -Infinity) continue;
      if (!(tileMax <= rowMax)) rowMax = tileMax;

      if (m === -Infinity) {
        m = tileMax;
      } else if (reference.kind !== 'row') {
        const allowed = reference.kind === 'running' ? 0 : reference.rollback;
        // Tested before any narrowing, and written so that NaN raises the reference too.
        if (allowed !== null && !(tileMax - m <= allowed)) {
          const rescale = round(2 ** (m - tileMax));
          for (let c = 0; c < valueSize; c++) total[c] = total[c]! * rescale;
          sum = round(sum * rescale);
          m = tileMax;
          trace.rollbacks++;
        }
      }

      for (let j = 0; j < count; j++) {
        weights[j] = first + j < begin ? -Infinity : round(scores[first + j]! - m);
      }
      if (sumRule === 'exact') {
        for (let j = 0; j < count; j++) sum = round(sum + 2 ** (weights[j]! + lift));
      }
      trace.saturations += weigh(weights, count);
      if (sumRule === 'weights') {
        for (let j = 0; j < count; j++) sum = round(sum + weights[j]!);
      }
      addWeighted(weights, count, values, first, total);
    }

    trace.drift = rowMax === -Infinity ? 0 : rowMax - m;
    if (rowMax === -Infinity) {
      out.fill(0);
      return trace;
    }
    const normaliser = round(sum + 2 ** (sink - m + lift));
    for (let c = 0; c < valueSize; c++) out[c] = total[c]! / normaliser;
    return trace;
  }

  return { run };
}
