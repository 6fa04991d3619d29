import type { MxattnRunOptions } from '@mxattn/ort-op';
import type { Tensor, TensorConstructor } from 'onnxruntime-common';
import { gaussianNoise } from './noise.js';
import { SIZE } from './pixels.js';
import type { EncodePrompt } from './vocabulary.js';

const ELEMENTS = 3 * SIZE * SIZE;
const FLOW_SHIFT = 1.5;
const GUIDANCE = 3;

/** What the sampler needs of a session. */
export interface VelocityModel {
  run(feeds: Record<string, Tensor>, options: MxattnRunOptions): Promise<{ readonly [name: string]: Tensor }>;
}

export interface DenoiseOptions {
  /** Of the runtime that runs the model. */
  readonly Tensor: TensorConstructor;
  readonly encodePrompt: EncodePrompt;
  readonly steps: number;
  /** Seed of the initial noise. */
  readonly seed: number;
  /** Called after each step with its number from 0, its time and the velocity of the prompt and of no prompt. */
  readonly onStep?: (step: number, ms: number, velocity: Float32Array) => void;
}

/**
 * Draws a picture: Euler steps of rectified flow from noise (t = 1) to image (t = 0) with classifier-free guidance.
 *
 * @returns [3, 64, 64] in -1..1, not clipped.
 */
export async function denoise(
  model: VelocityModel,
  prompt: string,
  { Tensor, encodePrompt, steps, seed, onStep = () => {} }: DenoiseOptions,
): Promise<Float32Array> {
  const words = [...encodePrompt(prompt), ...encodePrompt(null)];
  const text = new Tensor('int64', BigInt64Array.from(words, BigInt), [2, words.length / 2]);
  const picture = gaussianNoise(ELEMENTS, seed);
  const times = Array.from({ length: steps + 1 }, (_, i) => shifted(1 - i / steps));
  for (let step = 0; step < steps; step++) {
    const both = new Float32Array(2 * ELEMENTS);
    both.set(picture);
    both.set(picture, ELEMENTS);
    const start = performance.now();
    const { velocity } = await model.run(
      {
        sample: new Tensor('float32', both, [2, 3, SIZE, SIZE]),
        timestep: new Tensor('float32', new Float32Array(2).fill(times[step]!), [2]),
        text_ids: text,
      },
      { step, steps },
    );
    const v = (await velocity!.getData()) as Float32Array;
    onStep(step, performance.now() - start, v);
    const dt = times[step + 1]! - times[step]!;
    for (let i = 0; i < ELEMENTS; i++) {
      const unguided = v[ELEMENTS + i]!;
      picture[i] = picture[i]! + dt * (unguided + GUIDANCE * (v[i]! - unguided));
    }
  }
  return picture;
}

function shifted(t: number): number {
  return (FLOW_SHIFT * t) / (1 + (FLOW_SHIFT - 1) * t);
}
