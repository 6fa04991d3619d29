import { useLavapipe } from '@mxattn/browser';
import { fromF16, toF16 } from '@mxattn/core';
import { readModel } from '@mxattn/ort-op';
import { createSession, InplaceSession, type WebSessionOptions } from '@mxattn/ort-op/web';
import { describeGpu, openGpu } from '@mxattn/ort-op/webgpu-node';
import type { Tensor } from 'onnxruntime-common';
import { Tensor as NodeTensor } from 'onnxruntime-node';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { relativeError } from '../conformance/random.js';
import { noise } from '../graph/noise.js';
import { type ModelText, onnx } from '../graph/onnx-text.js';
import { runStock } from '../graph/stock.js';
import { closeWeb, openWeb, type WebRuntime } from './device.js';
import { expectHalves, plainRows } from './halves.js';
import { expectPackedDecoder } from './packed-decoder.js';
import { decoder, Sequence } from './packed-sequence.js';

// ONNX Runtime's float16 programs need `shader-f16`.
const onGpu = process.env.MXATTN_GPU !== undefined;
const description = (onGpu ? undefined : useLavapipe()) ?? (await describeGpu());
const without = typeof description === 'string' ? description : reasonAgainst(description.features);
if (without !== undefined) console.warn(`skipped: float16 in place: ${without}`);

function reasonAgainst(features: readonly string[]): string | undefined {
  return features.includes('shader-f16') ? undefined : 'the GPU has no shader-f16';
}

/** The stock runtime rounds scores and probabilities to float16 on the way. */
const ROUNDING = 3e-3;

const weights = (count: number, seed: number) => noise(count, seed).map((x) => x / 4);

/** Two query heads that share one of keys, in one node. The head size is that of the self-test: a pipeline less. */
const causal: ModelText = {
  nodes: `
    wq16 = Cast<to=10>(wq)
    wk16 = Cast<to=10>(wk)
    wv16 = Cast<to=10>(wv)
    q = MatMul(x, wq16)
    k = MatMul(x, wk16)
    v = MatMul(x, wv16)
    y = Attention<is_causal=1,q_num_heads=2,kv_num_heads=1>(q, k, v)`,
  inputs: { x: 'f16[B,S,12]' },
  initializers: {
    wq: { dims: [12, 128], data: weights(12 * 128, 1) },
    wk: { dims: [12, 64], data: weights(12 * 64, 2) },
    wv: { dims: [12, 64], data: weights(12 * 64, 3) },
  },
  outputs: { y: 'f16[B,S,128]' },
  opset: 23,
};

/** As converters to float16 write it: a mask of the lowest half, the softmax in float32. */
const masked: ModelText = {
  nodes: `
    kt = Transpose<perm=[0,1,3,2]>(k)
    raw = MatMul(q, kt)
    scale = Cast<to=10>(0.25)
    s = Mul(raw, scale)
    low = Cast<to=10>(-65504.0)
    a = Where(m, s, low)
    w = Cast<to=1>(a)
    f = Softmax<axis=-1>(w)
    p = Cast<to=10>(f)
    y = MatMul(p, v)`,
  inputs: { q: 'f16[1,2,S,16]', k: 'f16[1,2,T,16]', v: 'f16[1,2,T,16]', m: 'bool[1,1,S,T]' },
  outputs: { y: 'f16[1,2,S,16]' },
  opset: 17,
};

describe.skipIf(without !== undefined)('float16 in place in Node.js', () => {
  let shared: WebRuntime;

  beforeAll(async () => {
    shared = await openWeb();
  });

  afterAll(() => {
    closeWeb();
  });

  type Values = Readonly<
    Record<string, { type: 'float16' | 'bool'; data: Uint16Array | Uint8Array; dims: number[] }>
  >;
  const halves = (dims: number[], seed: number) => {
    const count = dims.reduce((a, b) => a * b);
    return { type: 'float16' as const, data: Uint16Array.from(noise(count, seed), toF16), dims };
  };

  /** Outputs of our kernels and of the stock runtime on the CPU, and where the attention ran. */
  async function both(text: ModelText, runs: readonly Values[], options: Partial<WebSessionOptions>) {
    const model = onnx(text);
    const { ort } = shared;
    const session = await createSession(model, {
      ...shared,
      backend: 'inplace',
      crossAttention: true,
      ...options,
    });
    const errors: number[] = [];
    for (const values of runs) {
      const feeds = <T>(Type: new (type: 'float16', data: Uint16Array, dims: number[]) => T) =>
        Object.fromEntries(
          Object.entries(values).map(([name, { type, data, dims }]) => [
            name,
            new Type(type as 'float16', data as Uint16Array, dims),
          ]),
        );
      const { y } = (await session.run(feeds(ort.Tensor))) as Record<'y', Tensor>;
      const expected = await runStock(readModel(model), feeds(NodeTensor));
      const output = numbers((await y.getData()) as Uint16Array);
      errors.push(relativeError(output, numbers(expected.y!.data as Uint16Array)));
    }
    expect(session).toBeInstanceOf(InplaceSession);
    const { dispatches } = session as InplaceSession;
    await session.release();
    return { errors, dispatches };
  }

  /** Of what onnxruntime-common has for float16: Float16Array where there is one. */
  const numbers = ({ buffer, byteOffset, length }: Uint16Array) =>
    Float32Array.from(new Uint16Array(buffer, byteOffset, length), fromF16);

  // Many tokens, and few of them, which ONNX Runtime computes in another way.
  it.each(['f32', 'mxfp6'] as const)('causal attention at %s', async (precision) => {
    const runs = [40, 5].map((length) => ({ x: halves([1, length, 12], 8) }));
    const { errors, dispatches } = await both(causal, runs, { precision });
    expect(dispatches).toEqual({ inPlace: 2, left: {} });
    for (const error of errors) expect(error).toBeLessThan(precision === 'f32' ? ROUNDING : 0.1);
    if (precision === 'mxfp6') expect(Math.max(...errors)).toBeGreaterThan(ROUNDING);
  });

  // By the pipelines that are compiled for it.
  describe.each(['f32', 'mxfp6'] as const)('the same kernels at %s', (precision) => {
    it.each(plainRows)('$name', async (row) => {
      await expectHalves(shared.device!, row, precision, { unroll: onGpu, matrix: false });
    });
  });

  it('a mask, and casts around the softmax', async () => {
    const runs = [37, 3].map((length) => ({
      q: halves([1, 2, length, 16], 1),
      k: halves([1, 2, 41, 16], 2),
      v: halves([1, 2, 41, 16], 3),
      m: {
        type: 'bool' as const,
        data: Uint8Array.from({ length: length * 41 }, (_, i) => Number(i % 41 <= i / 41 + 5)),
        dims: [1, 1, length, 41],
      },
    }));
    const { errors, dispatches } = await both(masked, runs, {});
    expect(dispatches).toEqual({ inPlace: 2, left: {} });
    for (const error of errors) expect(error).toBeLessThan(ROUNDING);
  });

  it('a packed cache with a mask', async () => {
    const session = await createSession(onnx(decoder({ masked: true, type: 'f16' })), {
      ...shared,
      backend: 'inplace',
      // Its kernels are those of the test that a session begins with.
      precision: 'f32',
      kvCacheFormat: 'mxfp4',
    });
    expect(session.report).toMatchObject({ kvCache: 'packed', kvCacheFormats: ['mxfp4'] });
    const sequence = new Sequence(shared.ort, session, 1, [3]);
    const exact = { precision: 'f32' } as const;
    expect((await sequence.run(35, 1, false, exact)).error).toBeLessThan(ROUNDING);
    const prefix = sequence.copy();
    expect((await sequence.run(2, 2, true, exact)).error).toBeLessThan(ROUNDING);
    expect((await prefix.run(1, 3, true, exact)).error).toBeLessThan(ROUNDING);
    expect(prefix.outputs.at(-1)!.nk!.type).toBe('float16');
    const imported = await prefix.to(session);
    expect((await imported.run(1, 4, true, exact)).error).toBeLessThan(ROUNDING);
  });

  it('a packed cache of GroupQueryAttention', () =>
    expectPackedDecoder({ ...shared, backend: 'inplace' }, { type: 'f16', rotary: true }));

  it('is refused on a device without shader-f16, and says so', async () => {
    // An adapter gives one device.
    const { gpu } = await openGpu();
    const plain = await (await gpu.requestAdapter())!.requestDevice();
    await expect(
      createSession(onnx(causal), { ...shared, device: plain, backend: 'inplace' }),
    ).rejects.toThrow(/float16 on devices with the feature shader-f16 only; request the device with it/);
    plain.destroy();
  });
});
