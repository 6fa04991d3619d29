import { useSoftwareVulkan } from '@mxattn/browser';
import { attentionSpec, referenceAttention } from '@mxattn/core';
import { createSession, type InplaceSession, kvCacheBytes, type WebSessionOptions } from '@mxattn/ort-op/web';
import { describeGpu } from '@mxattn/ort-op/webgpu-node';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { normal, relativeError } from '../conformance/random.js';
import { decoderFeeds, groupQueryDecoder } from '../graph/group-query-decoder.js';
import { onnx } from '../graph/onnx-text.js';
import { cachedKeys, cachedValues } from './cached-operands.js';
import { closeWeb, openWeb, type WebRuntime } from './device.js';
import { expectPackedDecoder } from './packed-decoder.js';
import {
  decoder,
  HEADS,
  KV_HEADS,
  type Outputs,
  Sequence,
  SIZE,
  transposed,
  WEIGHT_ERROR,
  WIDTH,
} from './packed-sequence.js';

if (process.env.MXATTN_GPU === undefined) useSoftwareVulkan();
const description = await describeGpu();
if (typeof description === 'string') console.warn(`skipped: ${description}`);

const SCALES = [0.25, 0.75] as const;

// Compiling takes most of the time on a processor.
const options = { timeout: 300_000 };

describe.skipIf(typeof description === 'string')('packed cache in onnxruntime-web', options, () => {
  let device: GPUDevice;
  let shared: WebRuntime & Pick<WebSessionOptions, 'backend'>;

  beforeAll(async () => {
    shared = { ...(await openWeb()), backend: 'inplace' };
    device = shared.device;
  });

  afterAll(() => {
    closeWeb();
  });

  const tensor = (dims: readonly number[], data: Float32Array) =>
    new shared.ort.Tensor('float32', data, dims);
  const open = (options: Partial<WebSessionOptions>, masked = false) =>
    createSession(onnx(decoder({ masked })), { ...shared, ...options });

  it('decodes as emulated, and gives what it holds', async () => {
    const session = await open({ precision: 'mxfp4' });
    expect(session.report).toMatchObject({
      backend: 'inplace',
      kvCache: 'packed',
      kvCacheFormats: ['mxfp4'],
    });
    expect(session.outputNames).toEqual(['y', 'nk', 'nv', 'q', 'k', 'v']);
    const sequence = new Sequence(shared.ort, session);
    expect((await sequence.run(40, 1, false)).error).toBeLessThan(WEIGHT_ERROR);
    for (let step = 0; step < 4; step++) {
      const { error, outputs } = await sequence.run(1, 10 + step, true);
      expect(error).toBeLessThan(WEIGHT_ERROR);
      expect(outputs.nk!.dims).toEqual([1, KV_HEADS, 41 + step, SIZE]);
      expect(outputs.nk!.location).toBe('gpu-buffer');
    }
    const { outputs } = await sequence.run(1, 20, true);
    const keys = cachedKeys(sequence.all('key'), KV_HEADS, 45, SIZE);
    const values = cachedValues(sequence.all('value'), KV_HEADS, 45, SIZE);
    expect(kvCacheBytes(outputs.nk!)).toBe(KV_HEADS * 1024 * (36 + 34));
    expect(relativeError((await outputs.nk!.getData()) as Float32Array, keys)).toBeLessThan(1e-5);
    expect(relativeError((await outputs.nv!.getData()) as Float32Array, values)).toBeLessThan(1e-6);
    // Their data are known now, and still they stand for the cache.
    expect((await sequence.run(1, 21, true)).error).toBeLessThan(WEIGHT_ERROR);
    expect((session as InplaceSession).dispatches).toEqual({ inPlace: 7, left: {} });
  });

  it('another precision reads it, and several tokens continue it', async () => {
    const session = await open({ schedule: '1:f32/1:mxfp4', kvCacheFormat: 'mxfp4' });
    const sequence = new Sequence(shared.ort, session);
    const exact = { precision: 'f32' } as const;
    expect((await sequence.run(33, 1, false, exact)).error).toBeLessThan(1e-5);
    expect((await sequence.run(1, 2, true, exact)).error).toBeLessThan(1e-5);
    expect((await sequence.run(40, 3, true, exact)).error).toBeLessThan(1e-5);
    expect((await sequence.run(1, 4, true, exact)).error).toBeLessThan(1e-5);
    expect((await sequence.run(1, 5, true, { precision: 'mxfp4' })).error).toBeLessThan(WEIGHT_ERROR);
    expect((await sequence.run(1, 6, true, exact)).error).toBeLessThan(1e-5);
    expect((await sequence.run(3, 7, true, { precision: 'mxfp4' })).error).toBeLessThan(WEIGHT_ERROR);
  });

  it('hides left padding of the sequences of a batch', async () => {
    const session = await open({ schedule: '1:f32/1:mxfp4', kvCacheFormat: 'mxfp4' }, true);
    for (const precision of ['f32', 'mxfp4'] as const) {
      const limit = precision === 'f32' ? 1e-5 : WEIGHT_ERROR;
      const sequence = new Sequence(shared.ort, session, 2, [7, 0]);
      expect((await sequence.run(35, 1, false, { precision })).error).toBeLessThan(limit);
      expect((await sequence.run(1, 2, true, { precision })).error).toBeLessThan(limit);
      expect((await sequence.run(1, 3, true, { precision })).error).toBeLessThan(limit);
    }
    const both = new Sequence(shared.ort, session, 2, [1, 0]);
    await both.run(4, 1, false);
    await expect(both.run(2, 2, true)).rejects.toThrow(
      /give them one by one, or create the session with kvCache/,
    );
    // Nothing was appended.
    await both.run(1, 3, true);
    // Of one sequence, several tokens.
    const sequence = new Sequence(shared.ort, session, 1, [3]);
    for (const count of [5, 4, 1]) {
      const { error } = await sequence.run(count, count, count < 5, { precision: 'f32' });
      expect(error).toBeLessThan(1e-5);
    }
  });

  it('takes the tokens of GroupQueryAttention', async () => {
    const session = await createSession(onnx(decoder({ grouped: true })), { ...shared, precision: 'mxfp4' });
    expect(session.report).toMatchObject({ kvCache: 'packed', left: [] });
    expect(session.outputNames).toEqual(['y', 'nk', 'nv', 'q', 'k', 'v']);
    const sequence = new Sequence(shared.ort, session, 2);
    for (const [step, count] of [40, 1, 1, 3, 1].entries()) {
      expect((await sequence.run(count, step, step > 0)).error).toBeLessThan(WEIGHT_ERROR);
    }
    expect((session as InplaceSession).dispatches).toEqual({ inPlace: 5, left: {} });
  });

  it('takes the tokens of GroupQueryAttention that rotates them, and has a window', () =>
    expectPackedDecoder(shared, { rotary: true, more: ', local_window_size=9' }));

  it('refuses entries of a batch with padding', async () => {
    const spec = { layers: 1, headSize: SIZE };
    const session = await createSession(onnx(groupQueryDecoder(spec)), { ...shared, precision: 'mxfp4' });
    const run = { count: 5, seed: 1, batch: 2, tokens: [5, 3] };
    await expect(session.run(decoderFeeds(shared.ort.Tensor, spec, run))).rejects.toThrow(
      /node_a0 has 3 tokens in entry 1 of the batch .* create the session with kvCache: 'tensors'/,
    );
  });

  it('tells layers apart', async () => {
    const session = await createSession(onnx(twoLayers()), {
      ...shared,
      precision: 'f32',
      kvCacheFormat: 'mxfp4',
    });
    expect(session.report).toMatchObject({ kvCache: 'packed', replaced: [{ layer: 0 }, { layer: 1 }] });
    const known = SCALES.map(() => ({ k: new Float32Array(0), v: new Float32Array(0) }));
    let past: Outputs | undefined;
    for (let length = 1; length <= 4; length++) {
      const cache = ['k0', 'v0', 'k1', 'v1'].map((name) => [
        `p${name}`,
        past?.[`n${name}`] ?? tensor([1, KV_HEADS, 0, SIZE], new Float32Array(0)),
      ]);
      const x = tensor([1, 1, WIDTH], normal(WIDTH, length));
      const outputs: Outputs = await session.run({ x, ...Object.fromEntries(cache) });
      past = outputs;
      for (const [layer, scale] of SCALES.entries()) {
        const data = async (name: string) => (await outputs[`${name}${layer}`]!.getData()) as Float32Array;
        const all = known[layer]!;
        for (const part of ['k', 'v'] as const) {
          all[part] = Float32Array.of(...all[part], ...(await data(part)));
        }
        const heads = (part: Float32Array) => transposed(part, 1, length, KV_HEADS);
        const operands = length === 1 ? heads(all.k) : cachedKeys(heads(all.k), KV_HEADS, length, SIZE);
        const expected = referenceAttention(
          { query: await data('q'), key: operands, value: heads(all.v) },
          attentionSpec({
            heads: HEADS,
            kvHeads: KV_HEADS,
            queryLength: 1,
            keyLength: length,
            headSize: SIZE,
            scale,
          }),
        );
        expect(relativeError(await data('y'), expected)).toBeLessThan(1e-5);
      }
    }
  });

  it('goes two ways from one prefix, in two sessions, and from tensors that hold data', async () => {
    const session = await open({ precision: 'mxfp4' });
    const sequence = new Sequence(shared.ort, session);
    await sequence.run(62, 1, false);
    const early = sequence.copy();
    for (let step = 0; step < 3; step++) await sequence.run(1, 10 + step, true);
    const late = sequence.copy();
    const run = async (each: Sequence, seed: number, limit = WEIGHT_ERROR) =>
      expect((await each.run(1, seed, true)).error).toBeLessThan(limit);
    await run(sequence, 20);
    await run(late, 21);
    // Its newest values have been quantised with those that came after them.
    await run(early, 22, 0.1);
    await run(sequence, 23);
    const other = await open({ precision: 'mxfp4' });
    const imported = await sequence.to(other);
    await run(imported, 24);
    await run(sequence, 25);
    await run(imported, 26);
  });

  it('is freed when its last tensor is disposed of, and says so', async () => {
    const session = await open({ precision: 'mxfp4' });
    const sequence = new Sequence(shared.ort, session);
    const { outputs } = await sequence.run(5, 1, false);
    outputs.nk!.dispose();
    outputs.nk!.dispose();
    expect((await sequence.run(1, 2, true)).error).toBeLessThan(WEIGHT_ERROR);
    outputs.nv!.dispose();
    const { outputs: next } = await sequence.run(1, 3, true);
    const live = [sequence.outputs[1]!, next];
    const stays = sequence.copy();
    for (const each of live) {
      each.nk!.dispose();
      each.nv!.dispose();
    }
    await expect(stays.run(1, 4, true)).rejects.toThrow(/this key\/value cache was disposed of/);
    await expect(session.run({ x: tensor([1, 1, WIDTH], normal(WIDTH, 1)) })).rejects.toThrow(
      /input "pk" is missing/,
    );
    const wrong = tensor([1, KV_HEADS, 0, 8], new Float32Array(0));
    await expect(
      session.run({ x: tensor([1, 1, WIDTH], normal(WIDTH, 1)), pk: wrong, pv: wrong }),
    ).rejects.toThrow(
      /input "pk" is float32 \[1, 2, 0, 8\], but the model takes float32 \[batch, 2, past, 64\]/,
    );
  });

  it('makes no buffers after the first steps', async () => {
    const session = await open({ precision: 'mxfp4' }, true);
    const sequence = new Sequence(shared.ort, session);
    await sequence.run(40, 1, false);
    const made: string[] = [];
    const createBuffer = device.createBuffer.bind(device);
    device.createBuffer = (descriptor) => {
      if (descriptor.label?.startsWith('mxattn')) made.push(descriptor.label);
      return createBuffer(descriptor);
    };
    for (let step = 0; step < 6; step++) await sequence.run(1, 10 + step, true);
    Reflect.deleteProperty(device, 'createBuffer');
    expect(made).toEqual([]);
  });

  it('stays a matter of tensors where it has no kernels, and says why', async () => {
    const reports = [];
    for (const options of [{}, { precision: 'mxfp6' }, { precision: 'mxfp4', kvCache: 'tensors' }] as const) {
      const session = await open(options);
      reports.push(session.report);
      await session.release();
    }
    expect(reports.map(({ kvCache }) => kvCache)).toEqual(['tensors', 'tensors', 'tensors']);
    expect(reports.map(({ kvCacheReason }) => kvCacheReason)).toEqual([
      'the attention that decodes is not mxfp4 in all layers and runs',
      'the attention that decodes is not mxfp4 in all layers and runs',
      'asked for',
    ]);
    await expect(open({ kvCacheFormat: 'f16' })).rejects.toThrow(
      /is mxfp4, not f16; leave kvCacheFormat out/,
    );
    await expect(open({ kvCacheFormat: 'mxfp4', kvCache: 'tensors' })).rejects.toThrow(/for packed caches/);
    await expect(open({ kvCache: 'native' as never })).rejects.toThrow(/there are packed, tensors/);
  });
});

/** Two layers, one of each scale. */
function twoLayers() {
  const merged = (heads: number) => `f32[1,S,${heads * SIZE}]`;
  const operands = (layer: number) => ({
    [`y${layer}`]: merged(HEADS),
    [`q${layer}`]: merged(HEADS),
    [`k${layer}`]: merged(KV_HEADS),
    [`v${layer}`]: merged(KV_HEADS),
  });
  const kv = `f32[1,${KV_HEADS},P,${SIZE}]`;
  const present = `f32[1,${KV_HEADS},?,${SIZE}]`;
  const weights = (from: number, to: number, seed: number) => ({
    dims: [from, to],
    data: normal(from * to, seed).map((each) => each / Math.sqrt(from)),
  });
  const [inner, kvInner] = [HEADS * SIZE, KV_HEADS * SIZE];
  return {
    nodes: `
      q0 = MatMul(x, wq0)
      k0 = MatMul(x, wk0)
      v0 = MatMul(x, wv0)
      y0 nk0 nv0 = Attention<is_causal=1,q_num_heads=${HEADS},kv_num_heads=${KV_HEADS},scale=${SCALES[0]}>(q0, k0, v0, , pk0, pv0)
      q1 = MatMul(y0, wq1)
      k1 = MatMul(y0, wk1)
      v1 = MatMul(y0, wv1)
      y1 nk1 nv1 = Attention<is_causal=1,q_num_heads=${HEADS},kv_num_heads=${KV_HEADS},scale=${SCALES[1]}>(q1, k1, v1, , pk1, pv1)
`,
    inputs: {
      x: `f32[1,S,${WIDTH}]`,
      pk0: kv,
      pv0: kv,
      pk1: kv,
      pv1: kv,
    },
    initializers: {
      wq0: weights(WIDTH, inner, 1),
      wk0: weights(WIDTH, kvInner, 2),
      wv0: weights(WIDTH, kvInner, 3),
      wq1: weights(inner, inner, 4),
      wk1: weights(inner, kvInner, 5),
      wv1: weights(inner, kvInner, 6),
    },
    outputs: { ...operands(0), ...operands(1), nk0: present, nv0: present, nk1: present, nv1: present },
    opset: 23,
  };
}
