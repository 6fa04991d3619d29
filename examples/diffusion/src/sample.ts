import type { MxattnSession } from '@mxattn/ort-op';
import { Tensor } from 'onnxruntime-node';
import { encodePrompt, NULL_PROMPT } from './prompt.js';

/** Denoising steps, as many as in the paper. */
export const STEPS = 20;
const SIZE = 64;
const ELEMENTS = 3 * SIZE * SIZE;
const FLOW_SHIFT = 1.5;
const GUIDANCE = 3;

export interface SampleOptions {
  /** Seed of the initial noise. */
  readonly seed: number;
  /** Called after each step with its number from 0, its time and the velocity of the prompt and of no prompt. */
  readonly onStep?: (step: number, ms: number, velocity: Float32Array) => void;
}

/**
 * Draws a picture: 20 Euler steps of rectified flow from noise (t = 1) to image (t = 0) with classifier-free
 * guidance.
 *
 * @returns [3, 64, 64] in -1..1, not clipped.
 */
export async function sample(
  model: MxattnSession,
  prompt: string,
  { seed, onStep = () => {} }: SampleOptions,
): Promise<Float32Array> {
  const words = [...encodePrompt(prompt), ...NULL_PROMPT];
  const text = new Tensor('int64', BigInt64Array.from(words, BigInt), [2, words.length / 2]);
  const picture = gaussianNoise(ELEMENTS, seed);
  const times = Array.from({ length: STEPS + 1 }, (_, i) => shifted(1 - i / STEPS));
  for (let step = 0; step < STEPS; step++) {
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
      { step },
    );
    const v = velocity!.data as Float32Array;
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

/** Standard normal numbers, the same for the same seed on every machine (Mulberry32, Box-Muller). */
export function gaussianNoise(count: number, seed: number): Float32Array {
  let state = seed >>> 0;
  const uniform = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return (((t ^ (t >>> 14)) >>> 0) + 0.5) / 2 ** 32;
  };
  return Float32Array.from(
    { length: count },
    () => Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform()),
  );
}
