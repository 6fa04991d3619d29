import { createSession, kvCacheBytes, type MxattnSession } from '@mxattn/ort-op';
import type { Tensor } from 'onnxruntime-node';
import { describe, expect, it } from 'vitest';
import { sameBytes } from '../conformance/random.js';
import { attentionFeeds, cachedAttention, KV_HEADS, SIZE } from './cached-attention.js';
import { cacheOf, decoderFeeds, mergedDecoder } from './merged-decoder.js';
import { floats } from './support.js';

function open(precision: 'f32' | 'mxfp4'): Promise<MxattnSession> {
  return createSession(cachedAttention(), { backend: 'native', threads: 2, precision });
}

/** Resident memory in MiB, without what only waits for the garbage collector. */
async function residentMemory(): Promise<number> {
  for (let i = 0; i < 3; i++) {
    globalThis.gc?.();
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return process.memoryUsage().rss / 2 ** 20;
}

describe('under load', () => {
  it.each(['f32', 'mxfp4'] as const)('gives the same answers in parallel runs: %s', async (precision) => {
    const sessions = await Promise.all([open(precision), open(precision)]);
    const inputs = [300, 170, 64, 1].map((length, i) => attentionFeeds(length, 10 * i));
    const alone: Float32Array[] = [];
    for (const each of inputs) alone.push(floats((await sessions[0]!.run(each)).y).slice());
    for (let round = 0; round < 5; round++) {
      const together = await Promise.all(
        sessions.flatMap((session) =>
          inputs.map(async (each) => floats((await session.run(each)).y).slice()),
        ),
      );
      const same = together.map((output, i) => sameBytes(output, alone[i % inputs.length]!));
      expect(same).not.toContain(false);
    }
    await Promise.all(sessions.map((session) => session.release()));
  });

  it('decodes 10,000 tokens in the memory of their cache', { timeout: 120_000 }, async () => {
    const session = await open('mxfp4');
    const { pk, pv, ...token } = attentionFeeds(1, 5);
    let cache = { pk: pk!, pv: pv! };
    const steps = async (count: number) => {
      for (let i = 0; i < count; i++) {
        const { nk, nv } = await session.run({ ...token, ...cache });
        cache = { pk: nk as Tensor, pv: nv as Tensor };
      }
    };
    await steps(2000);
    const before = await residentMemory();
    await steps(8000);
    expect(cache.pk.dims[2]).toBe(10_000);
    // 10 chunks of 1,024 tokens: 4.25 bits an element.
    expect(kvCacheBytes(cache.pk)).toBeLessThan(2 * KV_HEADS * 10 * 1024 * SIZE * 0.6);
    // What a step might leave behind, 8,000 times; 2 KiB each would show.
    expect((await residentMemory()) - before).toBeLessThan(16);
    await session.release();
  });

  // 40 KiB of new tensors a step, and as much of tensors handed on.
  it.each(['disposed of', 'left to the collector'])(
    'decodes 2,000 tokens with native tensors that are %s',
    { timeout: 120_000 },
    async (fate) => {
      const session = await createSession(mergedDecoder('passed'), { backend: 'native', threads: 2 });
      const steps = async (count: number) => {
        let cache = cacheOf(await session.run(decoderFeeds(40, 1)));
        for (let i = 0; i < count; i++) {
          const next = cacheOf(await session.run(decoderFeeds(1, 2, cache)));
          if (fate === 'disposed of') for (const tensor of Object.values(cache)) tensor.dispose();
          // As long as it was, or the cache would be what grows.
          cache = i % 40 === 39 ? cacheOf(await session.run(decoderFeeds(40, 1))) : next;
        }
      };
      await steps(500);
      const before = await residentMemory();
      await steps(2000);
      expect((await residentMemory()) - before).toBeLessThan(16);
      await session.release();
    },
  );

  it('opens and releases 200 sessions with native tensors without keeping memory', async () => {
    const kept: Tensor[] = [];
    const once = async () => {
      const session = await createSession(mergedDecoder('passed'), { backend: 'native', threads: 2 });
      const cache = cacheOf(await session.run(decoderFeeds(400, 1)));
      // Not disposed of, and still in use: their memory goes with the session.
      kept.push(...Object.values(cache));
      await session.release();
    };
    for (let i = 0; i < 50; i++) await once();
    const before = await residentMemory();
    for (let i = 0; i < 150; i++) await once();
    // Kept, 150 caches of 220 KiB would be 32 MiB beside their sessions.
    expect((await residentMemory()) - before).toBeLessThan(24);
    expect(kept).toHaveLength(800);
  });

  it('opens and releases 200 sessions without keeping memory', { timeout: 120_000 }, async () => {
    const once = async () => {
      const session = await open('mxfp4');
      await session.run(attentionFeeds(64, 3));
      await session.release();
    };
    for (let i = 0; i < 50; i++) await once();
    const before = await residentMemory();
    for (let i = 0; i < 150; i++) await once();
    expect((await residentMemory()) - before).toBeLessThan(24);
  });
});
