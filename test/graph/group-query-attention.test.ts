import { convertModel, createSession, readModel, writeModel } from '@mxattn/ort-op';
import { Tensor } from 'onnxruntime-node';
import { describe, expect, it } from 'vitest';
import { noise } from './noise.js';
import { type ModelText, onnx } from './onnx-text.js';
import { relativeError, runStock } from './stock.js';

const [heads, kvHeads, size] = [4, 2, 16];

interface Run {
  /** Tokens of this run. */
  readonly length: number;
  /** Tokens of each entry of the batch, with those of this run. */
  readonly totals: number[];
  /** Places in the cache; as many as the tokens of earlier runs if not given. */
  readonly cache?: number;
  /** Attributes besides the number of heads. */
  readonly more?: string;
  readonly packed?: boolean;
  readonly rotary?: boolean;
  /** Positions for the rotation, other than those in the cache. */
  readonly positions?: boolean;
  /** A bias for each query and key. */
  readonly bias?: boolean;
  readonly sink?: boolean;
}

/** A node, and the feeds of a run of it. */
function groupQuery({ length, totals, cache, more = '', packed = false, rotary = false, ...extra }: Run) {
  const { positions = false, bias = false, sink = false } = extra;
  const batch = totals.length;
  const total = Math.max(...totals);
  const places = cache ?? total - length;
  const widths = packed ? { q: heads + 2 * kvHeads } : { q: heads, k: kvHeads, v: kvHeads };
  const inputs = Object.fromEntries(
    Object.entries(widths).map(([name, count]) => [name, `f32[B,S,${count * size}]`]),
  );
  const operands = packed ? 'q, , ' : 'q, k, v';
  const text: ModelText = {
    nodes: `y nk nv = com.microsoft.GroupQueryAttention<num_heads=${heads}, kv_num_heads=${kvHeads}${more}>(${operands}, pk, pv, lengths, total, ${rotary ? 'cos, sin' : ', '}, ${positions ? 'positions' : ''}, ${bias ? 'bias' : ''}, ${sink ? 'sink' : ''})`,
    inputs: {
      ...inputs,
      pk: `f32[B,${kvHeads},P,${size}]`,
      pv: `f32[B,${kvHeads},P,${size}]`,
      lengths: 'i32[B]',
      total: 'i32[]',
      ...(rotary ? { cos: `f32[64,${size / 2}]`, sin: `f32[64,${size / 2}]` } : {}),
      ...(positions ? { positions: 'i64[B,S]' } : {}),
      ...(bias ? { bias: `f32[1,${heads},S,T]` } : {}),
      ...(sink ? { sink: `f32[${heads}]` } : {}),
    },
    outputs: {
      y: `f32[B,S,${heads * size}]`,
      nk: `f32[B,${kvHeads},?,${size}]`,
      nv: `f32[B,${kvHeads},?,${size}]`,
    },
  };
  const random = (seed: number, ...dims: number[]) =>
    new Tensor(
      'float32',
      noise(
        dims.reduce((a, b) => a * b, 1),
        seed,
      ),
      dims,
    );
  const angles = (wave: (angle: number) => number) =>
    new Tensor(
      'float32',
      Float32Array.from({ length: 64 * (size / 2) }, (_, at) =>
        wave(Math.floor(at / (size / 2)) / 10 ** (at % (size / 2))),
      ),
      [64, size / 2],
    );
  const feeds = {
    ...Object.fromEntries(
      Object.entries(widths).map(([name, count], index) => [
        name,
        random(index, batch, length, count * size),
      ]),
    ),
    pk: random(5, batch, kvHeads, places, size),
    pv: random(6, batch, kvHeads, places, size),
    lengths: new Tensor(
      'int32',
      Int32Array.from(totals, (each) => each - 1),
      [batch],
    ),
    total: new Tensor('int32', Int32Array.of(total), []),
    ...(rotary ? { cos: angles(Math.cos), sin: angles(Math.sin) } : {}),
    ...(positions
      ? {
          positions: new Tensor(
            'int64',
            BigInt64Array.from({ length: batch * length }, (_, at) => BigInt((at * 5) % 31)),
            [batch, length],
          ),
        }
      : {}),
    ...(bias ? { bias: random(7, 1, heads, length, total) } : {}),
    ...(sink ? { sink: random(8, heads) } : {}),
  };
  return { text, feeds };
}

/** The rows of a cache that hold tokens. */
function filled(cache: Tensor, totals: readonly number[]): Float32Array {
  const places = cache.dims[2]!;
  const rows = cache.data as Float32Array;
  return Float32Array.from(
    totals.flatMap((total, entry) =>
      Array.from({ length: kvHeads }, (_, head) => {
        const start = (entry * kvHeads + head) * places * size;
        return [...rows.subarray(start, start + total * size)];
      }).flat(),
    ),
  );
}

async function expectReplaced(run: Run): Promise<void> {
  const { text, feeds } = groupQuery(run);
  const { model, report } = convertModel(onnx(text), { crossAttention: true });
  expect(report.left).toEqual([]);
  expect(report.replaced[0]).toMatchObject({ heads, kvHeads, headSize: size, hasCache: true });
  const [expected, actual] = [await runStock(readModel(onnx(text)), feeds), await runStock(model, feeds)];
  expect(relativeError(actual.y as Tensor, expected.y as Tensor)).toBeLessThan(1e-5);
  for (const name of ['nk', 'nv']) {
    const [before, after] = [expected[name] as Tensor, actual[name] as Tensor];
    expect(after.dims).toEqual(before.dims);
    const rows = [after, before].map((each) => filled(each, run.totals));
    const [a, b] = rows.map((each) => new Tensor('float32', each, [each.length]));
    expect(relativeError(a!, b!)).toBeLessThan(1e-5);
  }
}

/** The line of a node whose query and key are normalized, by it or by nodes before it. */
function normalizing(run: Run, inside: boolean): ModelText {
  const { text } = groupQuery(run);
  const before = (name: string, count: number) => `
    ${name}4 = Reshape(${name}, [0, 0, ${count}, ${size}])
    ${name}n = SimplifiedLayerNormalization<axis=-1, epsilon=0.001>(${name}4, ${name}w)
    ${name}f = Reshape(${name}n, [0, 0, ${count * size}])`;
  const nodes = inside
    ? text.nodes.replace('>(', ', qk_norm_epsilon=0.001>(').replace(/\)$/, ', , , qw, kw)')
    : `${before('q', heads)}${before('k', kvHeads)}\n${text.nodes.replace('(q, k,', '(qf, kf,')}`;
  return { ...text, nodes, inputs: { ...text.inputs, qw: `f32[${size}]`, kw: `f32[${size}]` } };
}

describe('com.microsoft GroupQueryAttention', () => {
  it('of a prompt', () => expectReplaced({ length: 5, totals: [5, 5] }));
  it('of a prompt with rotation', () =>
    expectReplaced({ length: 5, totals: [5, 5], rotary: true, more: ', do_rotary=1' }));
  it('of one token behind a cache', () => expectReplaced({ length: 1, totals: [7, 7] }));
  it('of one token with rotation', () =>
    expectReplaced({ length: 1, totals: [7, 7], rotary: true, more: ', do_rotary=1' }));
  it('of some tokens behind a cache', () =>
    expectReplaced({ length: 3, totals: [9], rotary: true, more: ', do_rotary=1' }));
  it('with entries of different length', () => expectReplaced({ length: 1, totals: [7, 4] }));
  it('with a cache longer than its tokens', () => expectReplaced({ length: 1, totals: [7, 4], cache: 12 }));
  it('with a cache longer than its tokens, whose tail is never read', async () => {
    const { text, feeds } = groupQuery({ length: 1, totals: [7, 4], cache: 12 });
    const { model } = convertModel(onnx(text), { crossAttention: true });
    const session = await createSession(writeModel(model), { backend: 'native', threads: 2 });
    const run = async () =>
      [await runStock(model, feeds), await session.run(feeds)].map(({ y }) => y as Tensor);
    const expected = await run();
    for (const cache of [feeds.pk, feeds.pv]) {
      for (let row = 0; row < 2 * kvHeads; row++) {
        const tokens = row < kvHeads ? 6 : 3;
        (cache.data as Float32Array).fill(NaN, (row * 12 + tokens) * size, (row + 1) * 12 * size);
      }
    }
    const actual = await run();
    actual.forEach((tensor, at) => {
      expect((tensor.data as Float32Array).every(Number.isFinite)).toBe(true);
      expect(relativeError(tensor, expected[at]!)).toBeLessThan(1e-6);
    });
    await session.release();
  });
  it('with one packed projection', () => expectReplaced({ length: 5, totals: [5, 5], packed: true }));
  it('with a window', () => expectReplaced({ length: 6, totals: [6], more: ', local_window_size=3' }));
  it('with a window behind a cache', () =>
    expectReplaced({ length: 1, totals: [9, 9], more: ', local_window_size=3' }));
  it('with a scale of its own', () => expectReplaced({ length: 5, totals: [5], more: ', scale=0.2' }));
  it('with a bias', () => expectReplaced({ length: 5, totals: [5, 5], bias: true }));
  it('with a bias and a cache longer than its tokens', () =>
    expectReplaced({ length: 1, totals: [7, 4], cache: 12, bias: true }));
  it('with sinks', () => expectReplaced({ length: 5, totals: [5, 5], sink: true }));
  it('with sinks, a bias and a soft cap behind a cache', () =>
    expectReplaced({ length: 1, totals: [7, 4], sink: true, bias: true, more: ', softcap=0.7' }));
  it('with sinks and a window in a long cache', () =>
    expectReplaced({ length: 1, totals: [7, 4], cache: 12, sink: true, more: ', local_window_size=3' }));
  it('with a smooth softmax', () =>
    expectReplaced({ length: 5, totals: [5, 5], more: ', smooth_softmax=1' }));
  it('with neighbours rotated together', () =>
    expectReplaced({
      length: 5,
      totals: [5, 5],
      rotary: true,
      more: ', do_rotary=1, rotary_interleaved=1',
    }));
  it('with positions of its own', () =>
    expectReplaced({ length: 5, totals: [5, 5], rotary: true, positions: true, more: ', do_rotary=1' }));
  it('of one token with a position of its own', () =>
    expectReplaced({ length: 1, totals: [7, 4], rotary: true, positions: true, more: ', do_rotary=1' }));
  it('with query and key normalized inside', async () => {
    const run: Run = { length: 1, totals: [7, 7], rotary: true, more: ', do_rotary=1' };
    const { feeds } = groupQuery(run);
    const all = {
      ...feeds,
      qw: new Tensor('float32', noise(size, 9), [size]),
      kw: new Tensor('float32', noise(size, 10), [size]),
    };
    // The stock CPU kernel does not normalize.
    const { model, report } = convertModel(onnx(normalizing(run, true)), { crossAttention: true });
    expect(report.left).toEqual([]);
    const [expected, actual] = [
      await runStock(readModel(onnx(normalizing(run, false))), all),
      await runStock(model, all),
    ];
    for (const name of ['y', 'nk', 'nv']) {
      expect(relativeError(actual[name] as Tensor, expected[name] as Tensor)).toBeLessThan(1e-5);
    }
  });
  it('that is not causal', () => expectReplaced({ length: 5, totals: [5, 5], more: ', causal=0' }));
});
