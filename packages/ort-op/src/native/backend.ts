import { type Backend, type Recipe, recipes } from '@mxattn/core';
import { addon } from './addon.js';
import { chooseIsa } from './isa.js';
import { inLayout, nativeProblem } from './problem.js';

/** kLargestHeadSize of native/cpu/problem.h. */
const LARGEST_HEAD_SIZE = 1024;

/** What the kernels for CPUs and GPUs implement. */
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
      const out = await addon().attention({ ...nativeProblem(tensors, spec, recipe), isa: build });
      return inLayout(out, spec);
    },
  };
}
