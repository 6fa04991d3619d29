import { fromF16 } from '@mxattn/core';
import { createSession, type MxattnSession } from '@mxattn/ort-op';
import { Tensor } from 'onnxruntime-node';
import { describe, expect, it } from 'vitest';
import { normal, relativeError, sameBytes } from '../conformance/random.js';
import { onnx } from '../graph/onnx-text.js';
import { CACHE, cacheOf, decoderFeeds, mergedDecoder } from './merged-decoder.js';
import { downloaded, floats, LLM, llmFeeds, someTokens, stockSession } from './support.js';

type Options = Parameters<typeof createSession>[1];

function open(options: Options = {}, encoder: 'passed' | 'empty' = 'passed'): Promise<MxattnSession> {
  return createSession(mergedDecoder(encoder), { backend: 'native', threads: 2, ...options });
}

/** A schedule that keeps a cache in the graph: no one format serves exact and quantised attention. */
const schedule = { default: 'f32', rules: [{ steps: [100, 100], precision: 'mxfp4' }] } as const;

function openLlm(options: Options = {}): Promise<MxattnSession> {
  return createSession(LLM, { backend: 'native', threads: 2, schedule, ...options });
}

describe('native tensors', () => {
  it.each(['passed', 'empty'] as const)('give what stock gives, the encoder’s being %s', async (encoder) => {
    const stock = await stockSession(mergedDecoder(encoder));
    const session = await open({}, encoder);
    expect(session.report.kvCache).toBe('native tensors');
    expect(session.report.replaced).toHaveLength(2);
    let [a, b] = [await stock.run(decoderFeeds(5, 1)), await session.run(decoderFeeds(5, 1))];
    let [ours, theirs] = [cacheOf(b), cacheOf(a)];
    for (let step = 0; step < 8; step++) {
      expect(relativeError(floats(b.y), floats(a.y))).toBeLessThan(2e-6);
      for (const name of CACHE) {
        const [present, expected] = [b[`present.${name}`] as Tensor, a[`present.${name}`] as Tensor];
        expect(present.location).toBe('gpu-buffer');
        expect(present.dims).toEqual(expected.dims);
      }
      [a, b] = [
        await stock.run(decoderFeeds(1, step, theirs)),
        await session.run(decoderFeeds(1, step, ours)),
      ];
      [ours, theirs] = [cacheOf(b, ours), cacheOf(a, theirs)];
    }
    for (const name of CACHE) {
      expect(relativeError(await downloaded(ours[name]), floats(theirs[name]))).toBeLessThan(1e-6);
    }
  });

  it('may be fed many times, also at the same time', async () => {
    const session = await open();
    const cache = cacheOf(await session.run(decoderFeeds(30, 1)));
    const continued = async (seed: number) =>
      floats((await session.run(decoderFeeds(1 + (seed % 3), seed, cache))).y).slice();
    const alone: Float32Array[] = [];
    for (let seed = 0; seed < 6; seed++) alone.push(await continued(seed));
    for (let round = 0; round < 20; round++) {
      const together = await Promise.all(alone.map((_, seed) => continued(seed)));
      expect(together.map((y, seed) => sameBytes(y, alone[seed]!))).not.toContain(false);
    }
  });

  it('may be disposed of while a run uses them', async () => {
    const session = await open();
    const cache = cacheOf(await session.run(decoderFeeds(500, 1)));
    const expected = floats((await session.run(decoderFeeds(40, 2, cache))).y).slice();
    const running = session.run(decoderFeeds(40, 2, cache));
    for (const tensor of Object.values(cache)) tensor.dispose();
    // What would take memory that was given up.
    const others = [3, 4, 5].map((seed) => session.run(decoderFeeds(500, seed)));
    expect(sameBytes(floats((await running).y), expected)).toBe(true);
    await Promise.all(others);
  });

  it('that are handed on unchanged share memory, and live as long as one of them', async () => {
    const session = await open();
    const first = await session.run(decoderFeeds(5, 1));
    const cache = cacheOf(first);
    const second = await session.run(decoderFeeds(1, 2, cache));
    const name = 'present.0.encoder.key';
    expect(second[name]).not.toBe(first[name]);
    (first[name] as Tensor).dispose();
    const third = await session.run(decoderFeeds(1, 3, cacheOf(second)));
    (second[name] as Tensor).dispose();
    const expected = await (await stockSession(mergedDecoder('passed'))).run(decoderFeeds(5, 1));
    expect(relativeError(await downloaded(third[name]), floats(expected[name]))).toBeLessThan(1e-6);
    // Alone, with nothing else to compute.
    const [key] = Object.values(
      await session.run(decoderFeeds(1, 3, cacheOf(second, cacheOf(third))), [name]),
    );
    expect(relativeError(await downloaded(key), floats(expected[name]))).toBeLessThan(1e-6);
  });

  it('become data when asked for them, which are fed like others', async () => {
    const session = await open();
    const cache = cacheOf(await session.run(decoderFeeds(5, 1)));
    const expected = floats((await session.run(decoderFeeds(1, 2, cache))).y).slice();
    const key = cache['0.decoder.key']!;
    expect(() => key.data).toThrow('The data is not on CPU');
    const data = await downloaded(key);
    expect(key.location).toBe('cpu');
    expect(sameBytes(floats((await session.run(decoderFeeds(1, 2, cache))).y), expected)).toBe(true);
    data.fill(0);
    expect(sameBytes(floats((await session.run(decoderFeeds(1, 2, cache))).y), expected)).toBe(false);
  });

  it('may be fed to another session', async () => {
    const [one, other] = [await open(), await open()];
    const cache = cacheOf(await one.run(decoderFeeds(5, 1)));
    const [a, b] = [await one.run(decoderFeeds(1, 2, cache)), await other.run(decoderFeeds(1, 2, cache))];
    expect(sameBytes(floats(a.y), floats(b.y))).toBe(true);
    // What is handed on is still the first session's.
    const key = b['present.0.encoder.key'] as Tensor;
    expect(sameBytes(await downloaded(key), await downloaded(cache['0.encoder.key']))).toBe(true);
  });

  it('and native caches may be fed to each other’s sessions', async () => {
    const [native, inGraph] = [await openLlm({ schedule: 'f32' }), await openLlm()];
    expect([native.report.kvCache, inGraph.report.kvCache]).toEqual(['native', 'native tensors']);
    const ids = someTokens(70);
    const [a, b] = [await native.run(llmFeeds(ids)), await inGraph.run(llmFeeds(ids), { step: 0 })];
    const expected = floats((await native.run(llmFeeds([7], a))).logits);
    for (const cache of [a, b]) {
      for (const session of [native, inGraph]) {
        const { logits } = await session.run(llmFeeds([7], cache), { step: 0 });
        expect(relativeError(floats(logits), expected)).toBeLessThan(1e-5);
      }
    }
  });

  it('hold float16 too', async () => {
    const kv = 'f16[1,2,?,32]';
    const model = onnx({
      nodes:
        'y present.0.key present.0.value = Attention<is_causal=1>(q, k, v, , past_key_values.0.key, past_key_values.0.value)',
      inputs: {
        ...Object.fromEntries(['q', 'k', 'v'].map((name) => [name, 'f16[1,2,new,32]'])),
        'past_key_values.0.key': kv,
        'past_key_values.0.value': kv,
      },
      outputs: { y: 'f16[1,2,new,32]', 'present.0.key': kv, 'present.0.value': kv },
      opset: 23,
    });
    const session = await createSession(model, { backend: 'native', crossAttention: true, schedule });
    expect(session.report.kvCache).toBe('native tensors');
    const half = (length: number) =>
      new Tensor(
        'float16',
        Uint16Array.from(normal(64 * length, 3), (x) => 0x3c00 + 100 * x),
        [1, 2, length, 32],
      );
    const [q, k, v] = [half(3), half(3), half(3)];
    const past = { 'past_key_values.0.key': half(2), 'past_key_values.0.value': half(2) };
    const { 'present.0.key': key } = await session.run({ q, k, v, ...past }, { step: 0 });
    const stock = await (await stockSession(model)).run({ q, k, v, ...past });
    expect(await downloaded(key)).toEqual((stock['present.0.key'] as Tensor).data);

    // From and to a native cache of halves.
    const native = await createSession(model, { backend: 'native', crossAttention: true });
    expect(native.report.kvCache).toBe('native');
    const caches = [
      await session.run({ q, k, v, ...past }, { step: 0 }),
      await native.run({ q, k, v, ...past }),
    ];
    const feeds = (cache: (typeof caches)[number]) => ({
      ...{ q, k, v },
      'past_key_values.0.key': cache['present.0.key'] as Tensor,
      'past_key_values.0.value': cache['present.0.value'] as Tensor,
    });
    const expected = Float32Array.from((await native.run(feeds(caches[1]!))).y!.data as Uint16Array, fromF16);
    for (const cache of caches) {
      for (const each of [session, native]) {
        const { y } = await each.run(feeds(cache), { step: 0 });
        const numbers = Float32Array.from((y as Tensor).data as Uint16Array, fromF16);
        expect(relativeError(numbers, expected)).toBeLessThan(1e-3);
      }
    }
  });
});

describe('outputs that are wanted as data', () => {
  const location = (outputs: Readonly<Record<string, unknown>>, name: string) =>
    (outputs[`present.${name}`] as Tensor).location;

  it('are so with kvCache tensors', async () => {
    const session = await open({ kvCache: 'tensors' });
    expect(session.report.kvCache).toBe('tensors');
    const outputs = await session.run(decoderFeeds(5, 1));
    expect(CACHE.map((name) => location(outputs, name))).toEqual(['cpu', 'cpu', 'cpu', 'cpu']);
  });

  it('are so where their preferred location says it', async () => {
    const one = await open({ preferredOutputLocation: { 'present.0.decoder.key': 'cpu' } });
    const outputs = await one.run(decoderFeeds(5, 1));
    expect(location(outputs, '0.decoder.key')).toBe('cpu');
    expect(location(outputs, '0.decoder.value')).toBe('gpu-buffer');
    const all = await open({ preferredOutputLocation: 'cpu' });
    expect(all.report.kvCache).toBe('tensors');
  });

  it('are so where a tensor is given to fetch them into', async () => {
    const session = await open();
    const target = new Tensor('float32', new Float32Array(2 * 5 * 32), [1, 2, 5, 32]);
    const fetches = { 'present.0.decoder.key': target, 'present.0.decoder.value': null };
    const outputs = await session.run(decoderFeeds(5, 1), fetches);
    expect(Object.keys(outputs)).toEqual(Object.keys(fetches));
    expect(outputs['present.0.decoder.key']).toBe(target);
    expect(location(outputs, '0.decoder.value')).toBe('gpu-buffer');
    const again = await session.run(decoderFeeds(5, 1));
    expect(sameBytes(await downloaded(again['present.0.decoder.key']), floats(target))).toBe(true);
    // Also where it would be handed on.
    const encoder = new Tensor('float32', new Float32Array(2 * 40 * 32), [1, 2, 40, 32]);
    await session.run(decoderFeeds(1, 2, cacheOf(again)), { y: null, 'present.0.encoder.key': encoder });
    expect(sameBytes(floats(encoder), await downloaded(again['present.0.encoder.key']))).toBe(true);
  });
});

describe('a native tensor that is gone is refused by name', () => {
  it('after dispose', async () => {
    const session = await open();
    const cache = cacheOf(await session.run(decoderFeeds(5, 1)));
    cache['0.encoder.value']!.dispose();
    await expect(session.run(decoderFeeds(1, 2, cache))).rejects.toThrow(
      'input "past_key_values.0.encoder.value" was disposed of; dispose of tensors when no run needs them any more',
    );
  });

  it('after the release of its session', async () => {
    const [session, other] = [await open(), await open()];
    const cache = cacheOf(await session.run(decoderFeeds(5, 1)));
    const key = await downloaded(cache['0.decoder.key']);
    await session.release();
    expect(key.every(Number.isFinite)).toBe(true);
    await expect(other.run(decoderFeeds(1, 2, cache))).rejects.toThrow(
      'input "past_key_values.0.decoder.value" was freed with the session it came from; release that one later, or download the tensor before',
    );
    await expect(cache['0.decoder.value']!.getData()).rejects.toThrow(
      'this tensor was freed with its session; read it before the session is released',
    );
    cache['0.decoder.value']!.dispose();
  });

  it('of another shape', async () => {
    const session = await open();
    const cache = cacheOf(await session.run(decoderFeeds(5, 1)));
    const feeds = { ...decoderFeeds(1, 2, cache), use_cache_branch: cache['0.decoder.key']! };
    await expect(session.run(feeds)).rejects.toThrow(
      'input "use_cache_branch" is float32 [1, 2, 5, 32], but the model takes bool [1]',
    );
  });
});
