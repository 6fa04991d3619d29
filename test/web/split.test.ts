import { schedule } from '@mxattn/core';
import { convertModel } from '@mxattn/ort-op';
import * as ort from 'onnxruntime-node';
import { describe, expect, it } from 'vitest';
import { SplitSession } from '../../packages/ort-op/src/web/split/session.js';
import { WasmSplitAttention } from '../../packages/ort-op/src/web/split/wasm-attention.js';
import { relativeError, runStock } from '../graph/stock.js';
import { zooFeeds, zooModel, zooNames } from '../graph/zoo.js';

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

  it('names an input that is missing or unknown', async () => {
    const session = await open(zooModel('bert.eager.ts17'));
    const feeds = zooFeeds('bert.eager.ts17');
    const { input_ids: ids, ...rest } = feeds;
    await expect(session.run(rest)).rejects.toThrow('input "input_ids" is missing');
    await expect(session.run({ ...feeds, colour: ids! })).rejects.toThrow('the model has no input "colour"');
    await session.release();
  });
});
