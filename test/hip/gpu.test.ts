import { createSession, listGpus, type MxattnSession } from '@mxattn/ort-op';
import type { InferenceSession } from 'onnxruntime-node';
import { describe, expect, it } from 'vitest';
import { relativeError } from '../conformance/random.js';
import { floats, LLM, llmFeeds, someTokens } from '../session/support.js';

// MXATTN_GPU=1: this machine's first GPU, AMD's, or NVIDIA's through CUDA.
const wanted = process.env.MXATTN_GPU !== undefined;
const { gpus, why } = wanted ? listGpus() : { gpus: [], why: 'sessions on a real GPU need MXATTN_GPU=1' };
if (gpus.length === 0) console.warn(`skipped: ${why}`);

describe.skipIf(gpus.length === 0)('a session on the GPU of this machine', () => {
  it.each([
    ['f32', 1e-4],
    ['mxfp6', 0.05],
    ['mxfp4', 0.1],
  ] as const)(
    'gives what one on the processor gives, prefilling and decoding: %s',
    async (precision, error) => {
      const sessions = [];
      for (const device of ['cpu', 'gpu'] as const) {
        sessions.push(await createSession(LLM, { device, precision, threads: 2 }));
      }
      const [cpu, gpu] = sessions as [MxattnSession, MxattnSession];
      expect(gpu.report.device).toContain(gpus[0]!.name);
      let caches: InferenceSession.OnnxValueMapType[] = [];
      for (const ids of [someTokens(200), [1], [2, 3], someTokens(100), [4]]) {
        caches = [await cpu.run(llmFeeds(ids, caches[0])), await gpu.run(llmFeeds(ids, caches[1]))];
        const [expected, out] = caches.map(({ logits }) => floats(logits)) as [Float32Array, Float32Array];
        expect(relativeError(out, expected)).toBeLessThan(error);
      }
      expect(gpu.report.reason).toBeUndefined();
      await cpu.release();
      await gpu.release();
    },
  );
});
