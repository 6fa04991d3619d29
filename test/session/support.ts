import { fileURLToPath } from 'node:url';
import { InferenceSession, Tensor } from 'onnxruntime-node';
import { normal } from '../conformance/random.js';

export const MODELS = fileURLToPath(new URL('../../examples/models/', import.meta.url));
export const LLM = `${MODELS}story-llama/onnx/model.onnx`;
export const DIFFUSION = `${MODELS}emoji-dit/onnx/model.onnx`;

const LAYERS = 8;
const KV_HEADS = 2;
const HEAD_SIZE = 64;

export function stockSession(model: string | Uint8Array): Promise<InferenceSession> {
  return InferenceSession.create(model as string, { intraOpNumThreads: 2, logSeverityLevel: 3 });
}

/** Feeds of the language model for these tokens after a cache, or after none. */
export function llmFeeds(
  ids: readonly number[],
  cache?: InferenceSession.OnnxValueMapType,
): Record<string, Tensor> {
  const past = (cache?.['present.0.key'] as Tensor | undefined)?.dims[2] ?? 0;
  const int64 = (values: readonly number[]) =>
    new Tensor('int64', BigInt64Array.from(values, BigInt), [1, values.length]);
  const feeds: Record<string, Tensor> = {
    input_ids: int64(ids),
    attention_mask: int64(new Array<number>(past + ids.length).fill(1)),
    position_ids: int64(ids.map((_, i) => past + i)),
  };
  for (let layer = 0; layer < LAYERS; layer++) {
    for (const part of ['key', 'value']) {
      feeds[`past_key_values.${layer}.${part}`] = (cache?.[`present.${layer}.${part}`] ??
        new Tensor('float32', new Float32Array(0), [1, KV_HEADS, 0, HEAD_SIZE])) as Tensor;
    }
  }
  return feeds;
}

/** Tokens by a fixed rule, spread over the vocabulary. */
export function someTokens(count: number): number[] {
  return Array.from({ length: count }, (_, i) => (i * 997 + 13) % 4096);
}

/** Feeds of one denoising step, guided. */
export function diffusionFeeds(seed = 1): Record<string, Tensor> {
  const noise = normal(3 * 64 * 64, seed);
  const both = new Float32Array(2 * noise.length);
  both.set(noise);
  both.set(noise, noise.length);
  return {
    sample: new Tensor('float32', both, [2, 3, 64, 64]),
    timestep: new Tensor('float32', Float32Array.of(0.8, 0.8), [2]),
    text_ids: new Tensor(
      'int64',
      BigInt64Array.from([44, 37, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0], BigInt),
      [2, 8],
    ),
  };
}

export function floats(tensor: unknown): Float32Array {
  return (tensor as Tensor).data as Float32Array;
}

/** The data of a float32 tensor wherever it lies. */
export async function downloaded(tensor: unknown): Promise<Float32Array> {
  return (await (tensor as Tensor).getData()) as Float32Array;
}
