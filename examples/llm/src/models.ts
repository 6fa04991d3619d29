import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { env } from '@huggingface/transformers';
import { MxattnError } from '@mxattn/core';
import { type PatchOptions, patch, unpatch } from '@mxattn/transformers-patch';

export const MODEL = 'story-llama';

/**
 * Makes transformers.js load models from this folder and from nowhere else.
 *
 * @throws MxattnError when the language model is not there.
 */
export function openModels(folder: string): void {
  const file = join(folder, MODEL, 'onnx', 'model.onnx');
  if (!existsSync(file)) throw new MxattnError(`the language model ${file} does not exist`);
  env.allowRemoteModels = false;
  env.localModelPath = folder;
}

/** Runs `body` with models loaded through mxattn, or with null as transformers.js loads them. */
export async function withAttention<T>(attention: PatchOptions | null, body: () => Promise<T>): Promise<T> {
  if (attention) patch({ ...attention, from: import.meta.url });
  try {
    return await body();
  } finally {
    unpatch();
  }
}
