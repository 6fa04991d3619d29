import { fileURLToPath } from 'node:url';
import { env } from '@huggingface/transformers';
import { hybridLayers } from '@mxattn/core';
import { patch, type PatchOptions, unpatch } from '@mxattn/transformers-patch';

/** Folder of the models, in transformers.js layout. */
export const MODELS = fileURLToPath(new URL('../../models/', import.meta.url));
export const MODEL = 'story-llama';

env.allowRemoteModels = false;
env.localModelPath = MODELS;

/** Ways to run the language model. */
export type LlmVariant = 'stock' | 'f32' | 'hybrid' | 'mxfp4';

/** What each variant asks of mxattn; null: transformers.js as it is. */
export const llmVariants: Readonly<Record<LlmVariant, PatchOptions | null>> = {
  stock: null,
  f32: { precision: 'f32' },
  hybrid: { schedule: hybridLayers({ edge: 1, edges: 'mxfp6', middle: 'mxfp4' }) },
  mxfp4: { precision: 'mxfp4' },
};

/** Runs `body` with models loaded the way of a variant. */
export async function withVariant<T>(variant: LlmVariant, body: () => Promise<T>): Promise<T> {
  const options = llmVariants[variant];
  if (options) patch({ ...options, backend: 'native', from: import.meta.url });
  try {
    return await body();
  } finally {
    unpatch();
  }
}
