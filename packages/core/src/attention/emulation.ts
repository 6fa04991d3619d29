import { alignLines } from '../formats/align.js';
import { type BlockScheme, dequantizeBlocks, quantizeBlocks, type Reals } from '../formats/block.js';
import { elementFormats, encodeElement } from '../formats/element.js';
import { hadamardRows, hasHadamard } from '../formats/hadamard.js';
import { fromBf16, toBf16 } from '../formats/half.js';
import { type LineView, rowView, tensorView } from '../formats/view.js';
import type { Recipe, TensorScheme } from '../precision/recipes.js';
import { dotRows, dotRowsF32 } from '../softmax/matrix.js';
import type { Arithmetic } from '../softmax/pipeline.js';
import { rowSoftmax } from '../softmax/row.js';
import { type HeadKernel, outputLength, runHeads } from './heads.js';
import type { AttentionSpec } from './spec.js';
import { type AttentionTensors, checkTensors } from './tensors.js';

/** Per query row, in the order [batch, head, query]. */
export interface AttentionTrace {
  /** Times the reference of the row was raised. */
  readonly rollbacks: Uint32Array;
  /** Weights of the row that were clipped to the top of their format. */
  readonly saturations: Uint32Array;
  /** Row maximum minus the final reference, in log2 units. */
  readonly drift: Float64Array;
}

/** An empty trace with room for every row of a spec. */
export function attentionTrace(spec: AttentionSpec): AttentionTrace {
  const rows = spec.batch * spec.heads * spec.queryLength;
  return {
    rollbacks: new Uint32Array(rows),
    saturations: new Uint32Array(rows),
    drift: new Float64Array(rows),
  };
}

/** How {@link emulateAttention} computes. */
export interface EmulationOptions<T extends Reals = Float32Array> {
  /** Default f64. */
  readonly arithmetic?: Arithmetic;
  /** Filled in when given. */
  readonly trace?: AttentionTrace;
  /** Where the result goes, for instance a Float64Array; default a new Float32Array. */
  readonly output?: T;
}

/** Replaces rows by their quantised values. */
function roundToBlocks(rows: Float64Array, view: LineView, scheme: BlockScheme, aligned = false): void {
  const tensor = quantizeBlocks(rows, view, scheme);
  dequantizeBlocks(tensor, view, rows);
  if (aligned) alignLines(rows, view, tensor);
}

/** Replaces values by their quantised values under one scale. */
function roundToScale(rows: Float64Array, scheme: TensorScheme, scale: number): void {
  const format = elementFormats[scheme.format];
  for (let i = 0; i < rows.length; i++) {
    const steps = rows[i]! / scale;
    rows[i] = Number.isNaN(steps)
      ? NaN
      : format.values[encodeElement(format, steps, scheme.rounding)]! * scale;
  }
}

function largestMagnitude(values: Float32Array): number {
  let max = 0;
  for (let i = 0; i < values.length; i++) max = Math.max(max, Math.abs(values[i]!));
  return max;
}

/**
 * Attention on really quantised operands, as the recipe says, element by element in float64 (or float32, in the order
 * of operations that kernels share: then the codes of the operands are theirs): what a native kernel of the same
 * recipe is compared with. Fold, rotation, quantisation, softmax and product with V
 * follow Fused-Softmax Attention (arXiv 2611.09225) or EFQ-Softmax (arXiv 2609.09721).
 *
 * @returns the output: [batch, heads, queryLength, valueHeadSize], or BSHD in that layout.
 * @throws MxattnError if a tensor does not fit the spec.
 */
export function emulateAttention<T extends Reals = Float32Array>(
  tensors: AttentionTensors,
  spec: AttentionSpec,
  recipe: Recipe,
  options: EmulationOptions<T> = {},
): T {
  checkTensors(tensors, spec);
  const { headSize, valueHeadSize, queryLength, keyLength } = spec;
  const { arithmetic = 'f64', trace, output = new Float32Array(outputLength(spec)) as T } = options;
  const round = arithmetic === 'f32' ? Math.fround : (x: number) => x;
  const dot = arithmetic === 'f32' ? dotRowsF32 : dotRows;
  // A kernel's scale is a float32 before it is folded.
  const fold = round(round(spec.scale) * Math.LOG2E);
  const rotated = recipe.hadamard && hasHadamard(headSize);
  const softmax = rowSoftmax(recipe.softmax, recipe.tile, valueHeadSize, arithmetic);
  const valueScale =
    recipe.value?.rule === 'tensor'
      ? round(largestMagnitude(tensors.value) / elementFormats[recipe.value.format].max) || 1
      : 1;
  const valueView = tensorView(
    { batch: 1, heads: 1, sequence: keyLength, channels: valueHeadSize },
    'BHSD',
    'sequence',
  );

  function prepare(rows: Float64Array, length: number, factor: number): void {
    for (let i = 0; i < rows.length; i++) rows[i] = round(rows[i]! * factor);
    if (rotated && arithmetic === 'f32') rows.set(rotatedInF32(rows));
    else if (rotated) hadamardRows(rows, headSize);
    if (recipe.stage === 'bf16') for (let i = 0; i < rows.length; i++) rows[i] = fromBf16(toBf16(rows[i]!));
    if (recipe.queryKey) roundToBlocks(rows, rowView(length, headSize), recipe.queryKey, recipe.aligned);
  }

  function rotatedInF32(rows: Float64Array): Float32Array {
    const rounded = Float32Array.from(rows);
    hadamardRows(rounded, headSize);
    return rounded;
  }

  const kernel: HeadKernel = {
    unit: Math.LOG2E,
    prepareQuery: (rows) => prepare(rows, queryLength, fold),
    prepareKey: (rows) => prepare(rows, keyLength, 1),
    prepareValue: (rows) => {
      if (recipe.value?.rule === 'tensor') roundToScale(rows, recipe.value, valueScale);
      else if (recipe.value) roundToBlocks(rows, valueView, recipe.value, recipe.aligned);
    },
    score: (query, start, keys, begin, end, scores) => dot(query, start, keys, headSize, begin, end, scores),
    reduce(scores, begin, end, values, sink, out, row) {
      const { rollbacks, saturations, drift } = softmax.run(scores, begin, end, values, sink, out);
      if (!trace) return;
      trace.rollbacks[row] = rollbacks;
      trace.saturations[row] = saturations;
      trace.drift[row] = drift;
    },
  };
  runHeads(tensors, spec, kernel, output);
  return output;
}
