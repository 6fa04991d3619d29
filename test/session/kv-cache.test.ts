import { attentionSpec, referenceAttention } from '@mxattn/core';
import { createSession, isaLevels, kvCacheBytes, type MxattnSession } from '@mxattn/ort-op';
import { type InferenceSession, Tensor } from 'onnxruntime-node';
import { describe, expect, it } from 'vitest';
import { normal, relativeError, sameBytes } from '../conformance/random.js';
import { onnx } from '../graph/onnx-text.js';
import { attentionFeeds, cachedAttention, HEADS, KV_HEADS, SIZE } from './cached-attention.js';
import { downloaded, floats, LLM, llmFeeds, someTokens } from './support.js';

type Outputs = InferenceSession.OnnxValueMapType;

const precisions = ['f32', 'mxfp8', 'mxfp6', 'mxfp4'] as const;

/** Whether outputs are the same; exact attention adds up in another order where its keys are in a cache. */
function alike(precision: string, a: Float32Array, b: Float32Array): boolean {
  return precision === 'f32' ? relativeError(a, b) < 2e-6 : sameBytes(a, b);
}

function open(options: Parameters<typeof createSession>[1]): Promise<MxattnSession> {
  return createSession(LLM, { backend: 'native', threads: 2, ...options });
}

describe.each(isaLevels())('native caches, %s', (isa) => {
  it.each(precisions)('give what tensors give: %s', async (precision) => {
    const tensors = await open({ precision, isa, kvCache: 'tensors' });
    const native = await open({ precision, isa });
    expect(tensors.report.kvCache).toBe('tensors');
    expect(native.report.kvCache).toBe('native');
    // Over the borders of blocks (32 tokens) and tiles (64).
    let [a, b] = [await tensors.run(llmFeeds(someTokens(50))), await native.run(llmFeeds(someTokens(50)))];
    for (let step = 0; step < 35; step++) {
      const ids = step === 7 ? [1, 2, 3] : [step];
      [a, b] = [await tensors.run(llmFeeds(ids, a)), await native.run(llmFeeds(ids, b))];
      expect((b['present.2.key'] as Tensor).dims).toEqual((a['present.2.key'] as Tensor).dims);
      expect(alike(precision, floats(b.logits), floats(a.logits))).toBe(true);
    }
  });
});

describe('a native cache', () => {
  const continued = async (session: MxattnSession, ids: number[], cache?: Outputs) =>
    floats((await session.run(llmFeeds(ids, cache))).logits);

  it.each(precisions)('used twice goes two ways: %s', async (precision) => {
    const tensors = await open({ precision, kvCache: 'tensors' });
    const native = await open({ precision });
    const [a, b] = [await tensors.run(llmFeeds(someTokens(90))), await native.run(llmFeeds(someTokens(90)))];
    for (const token of [9, 11]) {
      const [ours, theirs] = [await continued(native, [token], b), await continued(tensors, [token], a)];
      expect(alike(precision, ours, theirs)).toBe(true);
    }
    // At the same time.
    const together = await Promise.all([9, 11, 13].map((token) => continued(native, [token], b)));
    for (const [i, token] of [9, 11, 13].entries()) {
      expect(alike(precision, together[i]!, await continued(tensors, [token], a))).toBe(true);
    }
  });

  it.each([
    ['f32', 2e-6],
    ['mxfp8', 0.02],
    // The values of the block that is continued are those of its codes.
    ['mxfp6', 0.02],
    ['mxfp4', 0.1],
  ] as const)('can be taken up again far behind its end: %s', async (precision, error) => {
    const tensors = await open({ precision, kvCache: 'tensors' });
    const native = await open({ precision });
    const [a, b] = [await tensors.run(llmFeeds(someTokens(90))), await native.run(llmFeeds(someTokens(90)))];
    const far = await native.run(llmFeeds(someTokens(40), await native.run(llmFeeds([5], b))));
    expect((far['present.0.key'] as Tensor).dims[2]).toBe(131);
    const [again, expected] = [await continued(native, [9], b), await continued(tensors, [9], a)];
    expect(relativeError(again, expected)).toBeLessThanOrEqual(error);
  });

  it.each(precisions)('starts from tensors with data: %s', async (precision) => {
    const tensors = await open({ precision, kvCache: 'tensors' });
    const native = await open({ precision });
    const cache = await tensors.run(llmFeeds(someTokens(75)));
    const expected = await continued(tensors, [3], cache);
    expect(relativeError(await continued(native, [3], cache), expected)).toBeLessThan(1e-6);
  });

  it('gives its data to whoever asks, and goes on', async () => {
    const tensors = await open({ kvCache: 'tensors' });
    const native = await open({});
    const [a, b] = [await tensors.run(llmFeeds(someTokens(75))), await native.run(llmFeeds(someTokens(75)))];
    for (const name of ['present.0.key', 'present.7.value']) {
      expect(sameBytes(await downloaded(b[name]), floats(a[name]))).toBe(true);
    }
    const [ours, theirs] = [await continued(native, [3], b), await continued(tensors, [3], a)];
    expect(alike('f32', ours, theirs)).toBe(true);
  });

  // Half a step of 11, 4, 4 and 2 significant bits, over what blocks lose at their lower end.
  it.each([
    ['f16', 2 ** -12],
    ['mxfp8', 0.04],
    ['mxfp6', 0.05],
    ['mxfp4', 0.15],
  ] as const)('of format %s holds what it can', async (kvCacheFormat, error) => {
    const exact = await open({});
    const native = await open({ kvCacheFormat });
    expect(native.report.kvCacheFormats).toEqual([kvCacheFormat]);
    const [a, b] = [await exact.run(llmFeeds(someTokens(75))), await native.run(llmFeeds(someTokens(75)))];
    for (const name of ['present.0.key', 'present.0.value']) {
      const difference = relativeError(await downloaded(b[name]), await downloaded(a[name]));
      expect(difference).toBeGreaterThan(error / 10);
      expect(difference).toBeLessThan(error);
    }
  });

  it.each([
    ['f32', 32],
    ['f16', 16],
    ['mxfp8', 8.25],
    ['mxfp6', 6.25],
    ['mxfp4', 4.25],
  ] as const)('of format %s takes %s bits an element', async (kvCacheFormat, bits) => {
    const outputs = await (await open({ kvCacheFormat })).run(llmFeeds(someTokens(1024)));
    const elements = 8 * 2 * 2 * 1024 * 64;
    const blocks = kvCacheFormat.startsWith('mx');
    // A block of values in floats, of each layer and head, and 8 bytes a tile of 64 tokens.
    const beside = blocks ? 8 * 2 * (32 * 64 * 4 + (1024 / 64) * 8) : 0;
    expect(kvCacheBytes(outputs['present.0.key'] as Tensor)).toBe((elements * bits) / 8 + beside);
  });

  it.each(['f16', 'mxfp8', 'mxfp6', 'mxfp4'] as const)(
    'of format %s is read exactly',
    async (kvCacheFormat) => {
      const native = await createSession(cachedAttention(), { backend: 'native', threads: 2, kvCacheFormat });
      let { y, nk, nv } = await native.run(attentionFeeds(75, 1));
      // Once with few rows and once with many.
      for (const length of [1, 40]) {
        const feeds: Record<string, Tensor> = {
          ...attentionFeeds(length, 5),
          pk: nk as Tensor,
          pv: nv as Tensor,
        };
        ({ y, nk, nv } = await native.run(feeds));
        const spec = attentionSpec({
          batch: 1,
          heads: HEADS,
          kvHeads: KV_HEADS,
          queryLength: length,
          keyLength: (nk as Tensor).dims[2]!,
          headSize: SIZE,
          causal: true,
        });
        const expected = referenceAttention(
          { query: floats(feeds.q), key: await downloaded(nk), value: await downloaded(nv) },
          spec,
        );
        expect(relativeError(floats(y), expected)).toBeLessThan(2e-6);
      }
    },
  );

  // Logits behind eight layers.
  it.each([
    ['mxfp8', 'mxfp6', 0.1],
    ['mxfp6', 'mxfp4', 0.3],
    ['mxfp4', 'mxfp6', 0.3],
  ] as const)(
    'of another format than the precision: %s reads %s',
    async (precision, kvCacheFormat, error) => {
      const exact = await open({});
      const native = await open({ precision, kvCacheFormat });
      let [a, b] = [await exact.run(llmFeeds(someTokens(90))), await native.run(llmFeeds(someTokens(90)))];
      for (const ids of [[7], someTokens(40)]) {
        [a, b] = [await exact.run(llmFeeds(ids, a)), await native.run(llmFeeds(ids, b))];
        const difference = relativeError(floats(b.logits), floats(a.logits));
        expect(difference).toBeGreaterThan(0.01);
        expect(difference).toBeLessThan(error);
      }
    },
  );

  it('serves exact and quantised runs where its format was asked for', async () => {
    const native = await open({
      schedule: { default: 'mxfp4', rules: [{ phase: 'prefill', precision: 'f32' }] },
      kvCacheFormat: 'mxfp6',
    });
    expect(native.report.kvCache).toBe('native');
    const cache = await native.run(llmFeeds(someTokens(70)));
    expect((await continued(native, [3], cache)).every(Number.isFinite)).toBe(true);
  });

  it('refuses a format that its attention cannot read', async () => {
    await expect(open({ precision: 'mxfp6', kvCacheFormat: 'f16' })).rejects.toThrow(
      'attention at precision mxfp6 cannot read a cache of kvCacheFormat f16; choose mxfp6 or mxfp4',
    );
    await expect(open({ kvCacheFormat: 'f16', kvCache: 'tensors' })).rejects.toThrow(
      "kvCacheFormat is for native caches; leave it out, or kvCache: 'tensors'",
    );
    await expect(open({ kvCacheFormat: 'int8' as never })).rejects.toThrow(
      'unknown kvCacheFormat "int8"; there are f32, mxfp6, mxfp4, mxfp8, f16',
    );
  });

  it('is continued by a run that is asked for nothing else', async () => {
    const native = await open({});
    const [a, b] = [await native.run(llmFeeds(someTokens(20))), await native.run(llmFeeds(someTokens(20)))];
    const names = Object.keys(a).filter((name) => name.startsWith('present'));
    const cache = await native.run(llmFeeds([5], a), names);
    expect(Object.keys(cache)).toEqual(names);
    const expected = await continued(native, [7], await native.run(llmFeeds([5], b)));
    expect(sameBytes(await continued(native, [7], cache), expected)).toBe(true);
  });

  it('is freed when its last tensor is disposed of', async () => {
    const native = await open({});
    const outputs = await native.run(llmFeeds(someTokens(20)));
    const presents = Object.entries(outputs).filter(([name]) => name.startsWith('present'));
    const [, last] = presents.at(-1)! as [string, Tensor];
    for (const [, tensor] of presents.slice(0, -1)) (tensor as Tensor).dispose();
    expect(kvCacheBytes(last)).toBeGreaterThan(0);
    last.dispose();
    expect(kvCacheBytes(last)).toBe(0);
    await expect(native.run(llmFeeds([1], outputs))).rejects.toThrow('this key/value cache was disposed of');
  });

  it('stays in the graph where no one format serves', async () => {
    const mixed = await open({
      schedule: { default: 'mxfp4', rules: [{ phase: 'decode', precision: 'f32' }] },
    });
    expect(mixed.report.kvCache).toBe('native tensors');
  });

  it('refuses a cache of the wrong shape by name', async () => {
    const native = await open({});
    const feeds = llmFeeds([1]);
    feeds['past_key_values.3.key'] = new Tensor('float32', new Float32Array(0), [1, 4, 0, 64]);
    await expect(native.run(feeds)).rejects.toThrow(
      'input "past_key_values.3.key" is float32 [1, 4, 0, 64], but the model takes float32 [batch, 2, past, 64]',
    );
    const { 'past_key_values.5.value': _, ...missing } = llmFeeds([1]);
    await expect(native.run(missing)).rejects.toThrow('input "past_key_values.5.value" is missing');
  });

  it('works for several sequences at once, and where the past is read for its length', async () => {
    // One layer: 2 heads of 32, scores of new tokens against the cache; the shape of the past is an output.
    const model = onnx({
      nodes: `
        q = MatMul(x, weight_q)
        k = MatMul(x, weight_k)
        v = MatMul(x, weight_v)
        key = Concat<axis=2>(past_key, k)
        value = Concat<axis=2>(past_value, v)
        columns = Transpose<perm=[0, 1, 3, 2]>(key)
        raw = MatMul(q, columns)
        scores = Mul(raw, 0.25)
        p = Softmax<axis=-1>(scores)
        out = MatMul(p, value)
        length = Shape(past_key)`,
      inputs: {
        x: 'f32[batch,2,new,32]',
        past_key: 'f32[batch,2,past,32]',
        past_value: 'f32[batch,2,past,32]',
      },
      initializers: Object.fromEntries(
        ['weight_q', 'weight_k', 'weight_v'].map((name, i) => [
          name,
          { dims: [32, 32], data: normal(32 * 32, i + 1) },
        ]),
      ),
      outputs: {
        out: 'f32[batch,2,new,32]',
        key: 'f32[batch,2,total,32]',
        value: 'f32[batch,2,total,32]',
        length: 'i64[4]',
      },
    });
    const feeds = (seed: number, count: number, cache?: Outputs): Record<string, Tensor> => {
      const x = new Tensor('float32', normal(3 * 2 * count * 32, seed), [3, 2, count, 32]);
      const empty = new Tensor('float32', new Float32Array(0), [3, 2, 0, 32]);
      return {
        x,
        past_key: (cache?.key ?? empty) as Tensor,
        past_value: (cache?.value ?? empty) as Tensor,
      };
    };
    const native = await createSession(model, { backend: 'native' });
    const stock = await createSession(model, { backend: 'stock' });
    expect(native.report.kvCache).toBe('native');
    let [a, b] = [await stock.run(feeds(1, 40)), await native.run(feeds(1, 40))];
    for (let step = 0; step < 30; step++) {
      [a, b] = [await stock.run(feeds(step, 1, a)), await native.run(feeds(step, 1, b))];
      expect(relativeError(floats(b.out), floats(a.out))).toBeLessThan(1e-5);
      expect((b.length as Tensor).data).toEqual((a.length as Tensor).data);
    }
  });
});
