import { MxattnError } from '../errors.js';
import type { AttentionSpec, Layout } from './spec.js';

/** A tensor that broadcasts, by NumPy's rules, to [batch, heads, queryLength, keyLength]. */
export interface ScoreTensor<T> {
  readonly data: T;
  /** One to four sizes, the last along the keys. */
  readonly dims: readonly number[];
}

/** The operands of one attention. None of them is ever modified. */
export interface AttentionTensors {
  /** [batch, heads, queryLength, headSize], or with sequence and heads exchanged in layout BSHD. */
  readonly query: Float32Array;
  /** As query, with kvHeads and keyCapacity. */
  readonly key: Float32Array;
  /** As key, with valueHeadSize channels. */
  readonly value: Float32Array;
  /** Added to the scores after the soft cap; -Infinity masks. In the unit of the scores (nats). */
  readonly bias?: ScoreTensor<Float32Array>;
  /** 1 keeps a key, 0 masks it. */
  readonly mask?: ScoreTensor<Uint8Array>;
  /** One extra score per query head (nats) that only enters the softmax sum. */
  readonly sinks?: Float32Array;
}

function checkLength(name: string, length: number, dims: readonly [string, number][]): void {
  const expected = dims.reduce((product, [, size]) => product * size, 1);
  if (length === expected) return;
  const names = dims.map(([dim]) => dim).join(', ');
  const sizes = dims.map(([, size]) => size).join(' x ');
  throw new MxattnError(
    `attention: ${name} has ${length} elements, expected ${expected} = ${sizes} ([${names}])`,
  );
}

function checkDense(
  name: string,
  data: Float32Array,
  spec: AttentionSpec,
  heads: [string, number],
  sequence: [string, number],
  channels: [string, number],
): void {
  const inner: [string, number][] = spec.layout === 'BHSD' ? [heads, sequence] : [sequence, heads];
  checkLength(name, data.length, [['batch', spec.batch], ...inner, channels]);
}

function checkScoreTensor(
  name: string,
  tensor: ScoreTensor<ArrayLike<unknown>>,
  target: readonly number[],
): void {
  const { data, dims } = tensor;
  const fits =
    dims.length >= 1 &&
    dims.length <= 4 &&
    dims.every((size, axis) => size === 1 || size === target[target.length - dims.length + axis]);
  if (!fits) {
    throw new MxattnError(
      `attention: ${name} has dims [${dims.join(', ')}], which do not broadcast to ` +
        `[batch, heads, queryLength, keyLength] = [${target.join(', ')}]`,
    );
  }
  checkLength(
    name,
    data.length,
    dims.map((size, axis) => [`dims[${axis}]`, size]),
  );
}

/**
 * Checks the length of every tensor against the spec.
 *
 * @throws MxattnError naming the tensor, its length and the expected dims.
 */
export function checkTensors(tensors: AttentionTensors, spec: AttentionSpec): void {
  const queries: [string, number] = ['queryLength', spec.queryLength];
  const keys: [string, number] = ['keyCapacity', spec.keyCapacity ?? spec.keyLength];
  const kvHeads: [string, number] = ['kvHeads', spec.kvHeads];
  checkDense('query', tensors.query, spec, ['heads', spec.heads], queries, ['headSize', spec.headSize]);
  checkDense('key', tensors.key, spec, kvHeads, keys, ['headSize', spec.headSize]);
  checkDense('value', tensors.value, spec, kvHeads, keys, ['valueHeadSize', spec.valueHeadSize]);
  const scores = [spec.batch, spec.heads, spec.queryLength, spec.keyLength];
  if (tensors.bias) checkScoreTensor('bias', tensors.bias, scores);
  if (tensors.mask) checkScoreTensor('mask', tensors.mask, scores);
  if (tensors.sinks) checkLength('sinks', tensors.sinks.length, [['heads', spec.heads]]);
}

/** Index of the first element and distance between positions of one head of a BHSD or BSHD tensor. */
export function headStride(
  layout: Layout,
  heads: number,
  sequence: number,
  channels: number,
  batch: number,
  head: number,
): { start: number; stride: number } {
  const batchStart = batch * heads * sequence * channels;
  return layout === 'BHSD'
    ? { start: batchStart + head * sequence * channels, stride: channels }
    : { start: batchStart + head * channels, stride: heads * channels };
}

/** The first rows of one head as contiguous float64 rows [sequence][channels]; the tensor has `capacity` of them. */
export function gatherHead(
  data: Float32Array,
  layout: Layout,
  heads: number,
  sequence: number,
  channels: number,
  batch: number,
  head: number,
  capacity = sequence,
): Float64Array {
  const { start, stride } = headStride(layout, heads, capacity, channels, batch, head);
  const rows = new Float64Array(sequence * channels);
  for (let s = 0; s < sequence; s++) {
    const from = start + s * stride;
    for (let c = 0; c < channels; c++) rows[s * channels + c] = data[from + c]!;
  }
  return rows;
}
