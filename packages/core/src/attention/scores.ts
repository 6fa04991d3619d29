import type { AttentionSpec } from './spec.js';
import type { AttentionTensors, ScoreTensor } from './tensors.js';

/** Keys [begin, end) that causal mask and window leave to a query; empty if end <= begin. */
export function visibleKeys(spec: AttentionSpec, query: number): { begin: number; end: number } {
  const position = query + spec.keyLength - spec.queryLength;
  const left = spec.window ? position - spec.window.left : 0;
  const right = Math.min(
    spec.causal ? position : Infinity,
    spec.window ? position + spec.window.right : Infinity,
  );
  return { begin: Math.max(0, left), end: Math.min(spec.keyLength, right + 1) };
}

/** Where a broadcast score tensor keeps the keys of one row: index of key 0 and step from key to key. */
function rowOf(
  dims: readonly number[],
  batch: number,
  head: number,
  query: number,
): { start: number; step: number } {
  const position = [batch, head, query, 0].slice(4 - dims.length);
  let start = 0;
  for (let axis = 0; axis < dims.length; axis++) {
    start = start * dims[axis]! + (dims[axis] === 1 ? 0 : position[axis]!);
  }
  return { start, step: dims[dims.length - 1] === 1 ? 0 : 1 };
}

/**
 * Applies soft cap, bias and mask, in this order, to the keys [begin, end) of one row of scores, in place.
 *
 * @param unit how many units of the scores are one nat: 1, or log2(e) for log2 units.
 */
export function adjustScores(
  scores: Float64Array,
  begin: number,
  end: number,
  spec: AttentionSpec,
  tensors: AttentionTensors,
  unit: number,
  batch: number,
  head: number,
  query: number,
): void {
  if (spec.softcap > 0) {
    const cap = spec.softcap * unit;
    for (let j = begin; j < end; j++) scores[j] = cap * Math.tanh(scores[j]! / cap);
  }
  if (tensors.bias) addBias(scores, begin, end, tensors.bias, unit, batch, head, query);
  if (tensors.mask) {
    const { data, dims } = tensors.mask;
    const { start, step } = rowOf(dims, batch, head, query);
    for (let j = begin; j < end; j++) if (data[start + j * step] === 0) scores[j] = -Infinity;
  }
}

function addBias(
  scores: Float64Array,
  begin: number,
  end: number,
  { data, dims }: ScoreTensor<Float32Array>,
  unit: number,
  batch: number,
  head: number,
  query: number,
): void {
  const { start, step } = rowOf(dims, batch, head, query);
  for (let j = begin; j < end; j++) {
    const bias = data[start + j * step]!;
    // Assigned, not added: a masked score stays masked even if it is NaN or infinite.
    scores[j] = bias === -Infinity ? -Infinity : scores[j]! + bias * unit;
  }
}
