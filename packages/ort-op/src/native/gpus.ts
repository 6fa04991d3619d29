import { type Backend, MxattnError, type Recipe, recipes } from '@mxattn/core';
import { addon, type GpuFacts, type NativeGpu } from './addon.js';
import { nativeRecipes } from './backend.js';
import { inLayout, nativeProblem, nativeSpec } from './problem.js';

/**
 * The GPUs that the native kernels can use, HIP's first, and of each driver that shows none the reason.
 *
 * @throws MxattnError when the addon is missing.
 */
export function listGpus(): { readonly gpus: readonly GpuFacts[]; readonly why: string } {
  return addon().listGpus();
}

/** What compiles the kernels for a GPU, e.g. `hiprtc 6.4`, or why nothing does. */
export function gpuCompiler(gpu = 0): { readonly compiler?: string; readonly error?: string } {
  try {
    const opened = openGpu(gpu);
    try {
      return { compiler: opened.compiler };
    } finally {
      opened.release();
    }
  } catch (error) {
    return { error: (error as Error).message };
  }
}

/** What the GPU kernels implement; sessions have those of the CPU. */
const gpuRecipes: readonly Recipe[] = [...nativeRecipes, recipes['mxfp6-direct']];

/** A backend that holds a GPU until it is released. */
export interface HipBackend extends Backend {
  release(): void;
}

/**
 * The kernels for AMD's GPUs, and in their portable form for NVIDIA's, as a backend of @mxattn/core, for `registerBackend`.
 * Operands come from the host and the output goes back to it.
 *
 * @param gpu Index in `listGpus()`.
 * @throws MxattnError naming what is missing.
 */
export function hipBackend({ gpu = 0, name = 'hip' }: { gpu?: number; name?: string } = {}): HipBackend {
  const opened = openGpu(gpu);
  return {
    name,
    priority: 20,
    supports(spec, recipe) {
      if (!gpuRecipes.includes(recipe)) return `does not implement the recipe ${recipe.name}`;
      const why = opened.unsupported(nativeSpec(spec, recipe));
      return why === undefined ? true : `does not compute ${why}`;
    },
    async attention(tensors, spec, recipe) {
      return inLayout(await opened.attention(nativeProblem(tensors, spec, recipe)), spec);
    },
    release() {
      opened.release();
    },
  };
}

function openGpu(gpu: number): NativeGpu {
  try {
    return new (addon().Gpu)(gpu);
  } catch (error) {
    throw error instanceof MxattnError ? error : new MxattnError((error as Error).message, { cause: error });
  }
}
