import { schedule, toF16 } from '@mxattn/core';
import { convertModel, readModel } from '@mxattn/ort-op';
import * as ort from 'onnxruntime-node';
import { describe, expect, it } from 'vitest';
import { SplitSession } from '../../packages/ort-op/src/web/split/session.js';
import { WasmSplitAttention } from '../../packages/ort-op/src/web/split/wasm-attention.js';
import { noise } from '../graph/noise.js';
import { onnx } from '../graph/onnx-text.js';
import { relativeError, runStock } from '../graph/stock.js';
import { zooFeeds, zooModel, zooNames } from '../graph/zoo.js';
import { mergedDecoder } from '../session/merged-decoder.js';

type Runtime = ConstructorParameters<typeof WasmSplitAttention>[0];
const runtime = ort as unknown as Runtime;

/** Segments in onnxruntime-node, whose sessions are quick, and our WebAssembly kernel between them. */
function open(model: Parameters<typeof convertModel>[0], plan = 'f32') {
  const { model: converted, report } = convertModel(model, { crossAttention: true });
  return SplitSession.open(
    converted,
    {
      create: (bytes) => ort.InferenceSession.create(bytes, { logSeverityLevel: 3 }),
      attention: new WasmSplitAttention(runtime),
      plan: schedule(plan),
    },
    { backend: 'split', ...report },
  );
}

/** One export of each architecture. */
const names = [...new Map(zooNames.map((name) => [name.split('.')[0], name])).values()];

describe('a model cut at its attentions', () => {
  it.each(names)('%s', async (name) => {
    const model = zooModel(name);
    const session = await open(model);
    const feeds = Object.fromEntries(
      Object.entries(zooFeeds(name)).filter(([input]) => session.inputNames.includes(input)),
    );
    const expected = await runStock(model, feeds);
    const actual = await session.run(feeds);
    expect(Object.keys(actual)).toEqual(Object.keys(expected));
    for (const [output, tensor] of Object.entries(expected)) {
      expect(relativeError(actual[output] as ort.Tensor, tensor as ort.Tensor)).toBeLessThan(1e-4);
    }
    await session.release();
  });

  it('follows a schedule by layer, and overlapping runs wait for each other', async () => {
    const name = 'llama.sdpa.ts17';
    const model = zooModel(name);
    const feeds = zooFeeds(name);
    const expected = Object.values(await runStock(model, feeds))[0] as ort.Tensor;
    const errorOf = async (plan: string | object) => {
      const session = await open(model, plan as string);
      const runs = await Promise.all([session.run(feeds), session.run(feeds)]);
      await session.release();
      const errors = runs.map((outputs) => relativeError(Object.values(outputs)[0] as ort.Tensor, expected));
      expect(errors[0]).toBe(errors[1]);
      return errors[0]!;
    };
    const first = await errorOf({ default: 'f32', rules: [{ layers: [0, 0], precision: 'mxfp4' }] });
    const both = await errorOf('mxfp4');
    expect(first).toBeGreaterThan(1e-4);
    expect(both).toBeGreaterThan(1e-4);
    expect(both).not.toBe(first);
  });

  it('takes float16, masks, and operands that no node computes', async () => {
    const fixed = noise(2 * 9 * 16, 3);
    const model = onnx({
      nodes: `
        k = Cast<to=10>(fixed)
        kt = Transpose<perm=[0,1,3,2]>(k)
        raw = MatMul(q, kt)
        scale = Cast<to=10>(0.25)
        s = Mul(raw, scale)
        low = Cast<to=10>(-65504.0)
        a = Where(m, s, low)
        p = Softmax<axis=-1>(a)
        y = MatMul(p, v)`,
      inputs: { q: 'f16[1,2,S,16]', v: 'f16[1,2,9,16]', m: 'bool[1,1,S,9]' },
      initializers: { fixed: { dims: [1, 2, 9, 16], data: fixed } },
      outputs: { y: 'f16[1,2,S,16]' },
      opset: 17,
    });
    const halves = (count: number, seed: number) => Uint16Array.from(noise(count, seed), toF16);
    const feeds = {
      q: new ort.Tensor('float16', halves(2 * 5 * 16, 1), [1, 2, 5, 16]),
      v: new ort.Tensor('float16', halves(2 * 9 * 16, 2), [1, 2, 9, 16]),
      m: new ort.Tensor(
        'bool',
        Array.from({ length: 45 }, (_, i) => i % 9 < 7 - (i % 4)),
        [1, 1, 5, 9],
      ),
    };
    const session = await open(readModel(model));
    expect(session.report.replaced).toHaveLength(1);
    const { y } = await session.run(feeds);
    const expected = (await runStock(readModel(model), feeds)).y as ort.Tensor;
    expect([y!.type, y!.dims]).toEqual(['float16', [1, 2, 5, 16]]);
    // The stock runtime rounds scores and probabilities to float16 on the way.
    expect(relativeError(y as ort.Tensor, expected)).toBeLessThan(3e-3);
    await session.release();
  });

  it('refuses attention in the body of an If, by name', async () => {
    await expect(open(readModel(mergedDecoder('passed')))).rejects.toThrow(
      /cannot be cut at FusedAttention_0: it is in a body of If/,
    );
  });

  it('names an input that is missing or unknown', async () => {
    const session = await open(zooModel('bert.eager.ts17'));
    const feeds = zooFeeds('bert.eager.ts17');
    const { input_ids: ids, ...rest } = feeds;
    await expect(session.run(rest)).rejects.toThrow('input "input_ids" is missing');
    await expect(session.run({ ...feeds, colour: ids! })).rejects.toThrow('the model has no input "colour"');
    await session.release();
  });
});
