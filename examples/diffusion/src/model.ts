import { fileURLToPath } from 'node:url';
import { hybrid } from '@mxattn/core';
import { createSession, type MxattnSession, type MxattnSessionOptions } from '@mxattn/ort-op';
import { STEPS } from './sample.js';

const MODEL = fileURLToPath(new URL('../../models/emoji-dit/onnx/model.onnx', import.meta.url));

/** Ways to run the diffusion transformer. */
export type DiffusionVariant = 'stock' | 'f32' | 'hybrid' | 'mxfp4';

/** What each variant asks of mxattn. `hybrid` is the schedule of the Fused-Softmax paper. */
export const diffusionVariants: Readonly<Record<DiffusionVariant, MxattnSessionOptions>> = {
  stock: { backend: 'stock' },
  f32: { backend: 'native', precision: 'f32' },
  hybrid: {
    backend: 'native',
    schedule: hybrid({ steps: STEPS, edge: 3, edges: 'mxfp6', middle: 'mxfp4' }),
  },
  mxfp4: { backend: 'native', precision: 'mxfp4' },
};

/** The diffusion transformer, run the way of a variant. */
export function openModel(variant: DiffusionVariant, threads: number): Promise<MxattnSession> {
  return createSession(MODEL, { ...diffusionVariants[variant], threads });
}
