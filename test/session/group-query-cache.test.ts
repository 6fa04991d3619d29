import { createSession, kvCacheBytes, type MxattnSession } from '@mxattn/ort-op';
import { type InferenceSession, Tensor } from 'onnxruntime-node';
import { describe, expect, it } from 'vitest';
import { relativeError } from '../conformance/random.js';
import {
  type DecoderRun,
  type DecoderSpec,
  decoderFeeds,
  groupQueryDecoder,
  numbersIn,
} from '../graph/group-query-decoder.js';
import { onnx } from '../graph/onnx-text.js';
import { stockSession } from './support.js';

type Outputs = InferenceSession.OnnxValueMapType;

/** A model in the stock runtime and in ours. */
class Pair {
  private constructor(
    readonly spec: DecoderSpec,
    readonly stock: InferenceSession,
    readonly ours: MxattnSession,
  ) {}

  static async open(spec: DecoderSpec, options: Parameters<typeof createSession>[1] = {}): Promise<Pair> {
    const model = onnx(groupQueryDecoder(spec));
    const ours = await createSession(model, { backend: 'native', threads: 2, ...options });
    return new Pair(spec, await stockSession(model), ours);
  }

  /** Runs both, each on its own cache. */
  async run(run: DecoderRun, past?: Both): Promise<Both> {
    const feeds = (outputs: Outputs | undefined) =>
      decoderFeeds(Tensor, this.spec, { ...run, ...(outputs ? { past: outputs } : {}) }) as Record<
        string,
        Tensor
      >;
    return {
      expected: await this.stock.run(feeds(past?.expected)),
      actual: await this.ours.run(feeds(past?.actual)),
    };
  }
}

interface Both {
  readonly expected: Outputs;
  readonly actual: Outputs;
}

/** The stock runtime rounds on the way what is float16. */
const LIMITS = { f32: 1e-5, f16: 4e-3 } as const;

async function expectAlike({ expected, actual }: Both, names: readonly string[], limit: number) {
  for (const name of names) {
    const [a, b] = [actual[name] as Tensor, expected[name] as Tensor];
    expect(a.type).toBe(b.type);
    expect(a.dims).toEqual(b.dims);
    expect(relativeError(await numbersIn(a), await numbersIn(b)), name).toBeLessThan(limit);
  }
}

const variants: readonly [string, DecoderSpec][] = [
  ['plain', {}],
  ['rotated', { rotary: true }],
  ['rotated, with neighbours together', { rotary: true, more: ', rotary_interleaved=1' }],
  ['with one packed projection', { rotary: true, packed: true }],
  ['with a window', { more: ', local_window_size=5' }],
  ['with a soft cap and a scale', { more: ', softcap=0.7, scale=0.4' }],
  ['with lengths as an input', { rotary: true, lengths: true }],
  ['of operator set 14', { rotary: true, opset: 14 }],
];

describe.each(['f32', 'f16'] as const)('native caches of GroupQueryAttention, %s', (type) => {
  it.each(variants)('%s', async (_, variant) => {
    const pair = await Pair.open({ type, ...variant });
    const format = type === 'f16' ? 'f16' : 'f32';
    expect(pair.ours.report).toMatchObject({ kvCache: 'native', kvCacheFormats: [format], left: [] });
    expect(pair.ours.outputNames).toEqual(pair.stock.outputNames);
    // A batch takes one token at a time behind a cache.
    for (const [batch, counts] of [
      [1, [9, 1, 1, 4, 1]],
      [2, [40, 1, 1, 1]],
    ] as const) {
      let past: Both | undefined;
      for (const [step, count] of counts.entries()) {
        past = await pair.run({ count, seed: 20 + step, batch }, past);
        await expectAlike(past, ['y'], LIMITS[type]);
      }
      expect((past!.actual['present.0.key'] as Tensor).location).toBe('gpu-buffer');
      await expectAlike(past!, ['present.0.key', 'present.1.value'], LIMITS[type]);
    }
  });

  it('go two ways from one prefix, and start from tensors that hold data', async () => {
    const pair = await Pair.open({ type, rotary: true });
    const prefix = await pair.run({ count: 37, seed: 1 });
    const longer = await pair.run({ count: 1, seed: 2 }, prefix);
    for (const [seed, past] of [
      [3, prefix],
      [4, longer],
      [5, prefix],
      [6, { ...prefix, actual: prefix.expected }],
    ] as const) {
      const next = await pair.run({ count: 1, seed }, past);
      await expectAlike(await pair.run({ count: 1, seed }, next), ['y'], LIMITS[type]);
    }
  });
});

describe('a native cache of GroupQueryAttention', () => {
  it('of float16 is no larger than its tensors', async () => {
    const pair = await Pair.open({ type: 'f16', headSize: 64 });
    const { actual } = await pair.run({ count: 5, seed: 1 });
    expect(kvCacheBytes(actual['present.0.key'] as Tensor)).toBe(2 * 2 * 2 * 1024 * 64 * 2);
  });

  it.each(['mxfp8', 'mxfp6', 'mxfp4'] as const)('of float16 is packed at %s', async (precision) => {
    const pair = await Pair.open({ type: 'f16', headSize: 64, layers: 1 }, { precision });
    expect(pair.ours.report.kvCacheFormats).toEqual([precision]);
    const prefix = await pair.run({ count: 70, seed: 1 });
    const next = await pair.run({ count: 1, seed: 2 }, prefix);
    await expectAlike(next, ['y', 'present.0.key'], 0.25);
    expect(
      relativeError(
        await numbersIn(next.actual['present.0.key']),
        await numbersIn(next.expected['present.0.key']),
      ),
    ).toBeGreaterThan(0.01);
  });

  it.each([true, false])('refuses entries of different length, lengths as an input: %s', async (lengths) => {
    const pair = await Pair.open({ lengths });
    const message =
      /node_a0 has 3 tokens in entry 1 of the batch \(seqlens_k, "lengths"\), but its past and its new tokens are 5: .* create the session with kvCache: 'tensors'/;
    const run = { count: 5, seed: 1, batch: 2, tokens: [5, 3] };
    await expect(pair.run(run)).rejects.toThrow(message);
    const tensors = await Pair.open({ lengths }, { kvCache: 'tensors' });
    expect(tensors.ours.report.kvCache).toBe('tensors');
    const padded = await tensors.run(run);
    await expectAlike(
      await tensors.run({ count: 1, seed: 2, batch: 2, tokens: [6, 4] }, padded),
      ['y'],
      1e-5,
    );
  });

  it('stays in the graph where a sink is one more key', async () => {
    const pair = await Pair.open({ more: ', smooth_softmax=1' });
    expect(pair.ours.report.kvCache).toBe('native tensors');
    const past = await pair.run({ count: 5, seed: 1 });
    await expectAlike(await pair.run({ count: 1, seed: 2 }, past), ['y'], 1e-5);
  });
});
