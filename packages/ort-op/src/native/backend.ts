import { additiveBias, type Backend, broadcastStrides, type Recipe, recipes } from '@mxattn/core';
import { addon } from './addon.js';
import { chooseIsa } from './isa.js';

/** kLargestHeadSize of native/cpu/problem.h. */
const LARGEST_HEAD_SIZE = 1024;

/** What the CPU kernel implements. */
export const nativeRecipes: readonly Recipe[] = [recipes.f32, recipes.mxfp6, recipes.mxfp4, recipes.mxfp8];

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
      const bias = additiveBias(tensors, spec);
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
