import {
  type AttentionSpec,
  type AttentionTensors,
  additiveBias,
  broadcastStrides,
  type Recipe,
} from '@mxattn/core';
import type { NativeProblem, NativeSpec } from './addon.js';

/** An attention without a bias as the addon takes it. */
export function nativeSpec(spec: AttentionSpec, recipe: Recipe): NativeSpec {
  const { batch, heads, kvHeads, queryLength, keyLength, headSize, valueHeadSize, scale, softcap, causal } =
    spec;
  return {
    biasStrides: [0, 0, 0, 0],
    batch,
    heads,
    kvHeads,
    queryLength,
    keyLength,
    headSize,
    valueHeadSize,
    scale,
    softcap,
    causal,
    windowLeft: spec.window?.left ?? -1,
    windowRight: spec.window?.right ?? -1,
    precision: recipe.id,
  };
}

/** An attention as the addon takes it: in BHSD order, the bias added up. */
export function nativeProblem(tensors: AttentionTensors, spec: AttentionSpec, recipe: Recipe): NativeProblem {
  const { batch, heads, kvHeads, queryLength, keyLength, headSize, valueHeadSize } = spec;
  const bias = additiveBias(tensors, spec);
  const bhsd = (data: Float32Array, headCount: number, length: number, size: number) =>
    spec.layout === 'BHSD' ? data : swapSequenceAndHeads(data, batch, length, headCount, size);
  return {
    ...nativeSpec(spec, recipe),
    query: bhsd(tensors.query, heads, queryLength, headSize),
    key: bhsd(tensors.key, kvHeads, keyLength, headSize),
    value: bhsd(tensors.value, kvHeads, keyLength, valueHeadSize),
    ...(bias ? { bias: bias.data, biasStrides: broadcastStrides(bias.dims) } : {}),
    ...(tensors.sinks ? { sinks: tensors.sinks } : {}),
  };
}

/** The addon's output in the order of the spec. */
export function inLayout(out: Float32Array, spec: AttentionSpec): Float32Array {
  const { batch, heads, queryLength, valueHeadSize } = spec;
  return spec.layout === 'BHSD' ? out : swapSequenceAndHeads(out, batch, heads, queryLength, valueHeadSize);
}

/** [batch, first, second, size] to [batch, second, first, size]. */
function swapSequenceAndHeads(
  data: Float32Array,
  batch: number,
  first: number,
  second: number,
  size: number,
): Float32Array {
  const swapped = new Float32Array(data.length);
  for (let b = 0; b < batch; b++) {
    for (let i = 0; i < first; i++) {
      for (let j = 0; j < second; j++) {
        const from = ((b * first + i) * second + j) * size;
        swapped.set(data.subarray(from, from + size), ((b * second + j) * first + i) * size);
      }
    }
  }
  return swapped;
}
