import type { AttentionSpec, AttentionTensors, Backend, Recipe, ScoreTensor } from '@mxattn/core';
import { recipes } from '@mxattn/core';
import { addon } from './addon.js';
import { chooseIsa } from './isa.js';

/** kLargestHeadSize of native/cpu/problem.h. */
const LARGEST_HEAD_SIZE = 1024;

/** What the CPU kernel implements. */
export const nativeRecipes: readonly Recipe[] = [recipes.f32, recipes.mxfp6, recipes.mxfp4];

/**
 * The CPU kernel as a backend of @mxattn/core, for `registerBackend`. One thread; sessions use all of theirs.
 *
 * @param isa Build of the kernel; default the fastest this processor can run. Part of the backend's name when given.
 * @throws MxattnError when the addon is missing or cannot run that build.
 */
export function nativeBackend(isa?: string): Backend {
  const build = chooseIsa(isa);
  return {
    name: isa === undefined ? 'native' : `native-${isa}`,
    priority: 10,
    supports(spec, recipe) {
      if (!nativeRecipes.includes(recipe)) return `does not implement the recipe ${recipe.name}`;
      if (recipe !== recipes.f32 && spec.headSize > LARGEST_HEAD_SIZE) {
        return `quantises head sizes up to ${LARGEST_HEAD_SIZE}, not ${spec.headSize}`;
      }
      return true;
    },
    async attention(tensors, spec, recipe) {
      const {
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
      } = spec;
      const bias = scoreBias(tensors, spec);
      const bhsd = (data: Float32Array, headCount: number, length: number, size: number) =>
        spec.layout === 'BHSD' ? data : swapSequenceAndHeads(data, batch, length, headCount, size);
      const out = await addon().attention({
        query: bhsd(tensors.query, heads, queryLength, headSize),
        key: bhsd(tensors.key, kvHeads, keyLength, headSize),
        value: bhsd(tensors.value, kvHeads, keyLength, valueHeadSize),
        ...(bias ? { bias: bias.data } : {}),
        ...(tensors.sinks ? { sinks: tensors.sinks } : {}),
        biasStrides: broadcastStrides(bias?.dims ?? []),
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
        isa: build,
      });
      return spec.layout === 'BHSD'
        ? out
        : swapSequenceAndHeads(out, batch, heads, queryLength, valueHeadSize);
    },
  };
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

/** Bias and mask as one additive bias: the kernel takes no other. */
function scoreBias(
  { bias, mask }: AttentionTensors,
  spec: AttentionSpec,
): ScoreTensor<Float32Array> | undefined {
  if (!mask) return bias;
  const masked = Float32Array.from(mask.data, (keep) => (keep ? 0 : -Infinity));
  if (!bias) return { data: masked, dims: mask.dims };
  const dims = [spec.batch, spec.heads, spec.queryLength, spec.keyLength];
  const data = new Float32Array(dims.reduce((product, size) => product * size));
  const biasStrides = broadcastStrides(bias.dims);
  const maskStrides = broadcastStrides(mask.dims);
  let at = 0;
  for (let b = 0; b < dims[0]!; b++) {
    for (let h = 0; h < dims[1]!; h++) {
      for (let q = 0; q < dims[2]!; q++) {
        for (let k = 0; k < dims[3]!; k++) {
          const index = (s: readonly number[]) => b * s[0]! + h * s[1]! + q * s[2]! + k * s[3]!;
          data[at++] = bias.data[index(biasStrides)]! + masked[index(maskStrides)]!;
        }
      }
    }
  }
  return { data, dims };
}

/** Steps in elements along [batch, heads, queryLength, keyLength]; 0 along broadcast axes. */
function broadcastStrides(dims: readonly number[]): [number, number, number, number] {
  const strides: [number, number, number, number] = [0, 0, 0, 0];
  let stride = 1;
  for (let axis = dims.length - 1; axis >= 0; axis--) {
    const size = dims[axis]!;
    if (size !== 1) strides[4 - dims.length + axis] = stride;
    stride *= size;
  }
  return strides;
}
