import { convertModel, createSession, kvCacheBytes, type MxattnSession, writeModel } from '@mxattn/ort-op';
import { Tensor } from 'onnxruntime-node';
import { describe, expect, it } from 'vitest';
import { normal, sameBytes } from '../conformance/random.js';
import { onnx } from '../graph/onnx-text.js';
import { floats } from './support.js';

const HEADS = 4;
const KV_HEADS = 2;
const SIZE = 32;

/** Causal attention with a cache, small enough to be run thousands of times. */
function model(): Uint8Array {
  const kv = `f32[1,${KV_HEADS},P,${SIZE}]`;
  const text = onnx({
    nodes: 'y nk nv = Attention<is_causal=1>(q, k, v, , pk, pv)',
    inputs: {
      q: `f32[1,${HEADS},S,${SIZE}]`,
      k: `f32[1,${KV_HEADS},S,${SIZE}]`,
      v: `f32[1,${KV_HEADS},S,${SIZE}]`,
      pk: kv,
      pv: kv,
    },
    outputs: {
      y: `f32[1,${HEADS},S,${SIZE}]`,
      nk: `f32[1,${KV_HEADS},?,${SIZE}]`,
      nv: `f32[1,${KV_HEADS},?,${SIZE}]`,
    },
    opset: 23,
  });
  return writeModel(convertModel(text, { crossAttention: true }).model);
}

function tensor(heads: number, length: number, seed: number): Tensor {
  return new Tensor('float32', normal(heads * length * SIZE, seed), [1, heads, length, SIZE]);
}

function feeds(length: number, seed: number): Record<string, Tensor> {
  return {
    q: tensor(HEADS, length, seed),
    k: tensor(KV_HEADS, length, seed + 1),
    v: tensor(KV_HEADS, length, seed + 2),
    pk: tensor(KV_HEADS, 0, 1),
    pv: tensor(KV_HEADS, 0, 1),
  };
}

function open(precision: 'f32' | 'mxfp4'): Promise<MxattnSession> {
  return createSession(model(), { backend: 'native', threads: 2, precision });
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
    const inputs = [300, 170, 64, 1].map((length, i) => feeds(length, 10 * i));
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
    const { pk, pv, ...token } = feeds(1, 5);
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

  it('opens and releases 200 sessions without keeping memory', { timeout: 120_000 }, async () => {
    const once = async () => {
      const session = await open('mxfp4');
      await session.run(feeds(64, 3));
      await session.release();
    };
    for (let i = 0; i < 50; i++) await once();
    const before = await residentMemory();
    for (let i = 0; i < 150; i++) await once();
    expect((await residentMemory()) - before).toBeLessThan(24);
  });
});
