import type { MxattnSession } from '@mxattn/ort-op';
import { Tensor } from 'onnxruntime-node';
import { type DenoiseOptions, denoise } from './denoise.js';
import { encodePrompt } from './prompt.js';

/** Denoising steps, as many as in the paper. */
export const STEPS = 20;

export type SampleOptions = Pick<DenoiseOptions, 'seed' | 'onStep'>;

/** Draws a picture in Node.js: [3, 64, 64] in -1..1, not clipped. */
export function sample(model: MxattnSession, prompt: string, options: SampleOptions): Promise<Float32Array> {
  return denoise(model, prompt, { ...options, Tensor, encodePrompt, steps: STEPS });
}
