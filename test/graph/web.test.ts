import { convertModel, type TargetName, writeModel } from '@mxattn/ort-op';
import type { Tensor } from 'onnxruntime-node';
import * as ort from 'onnxruntime-web';
import { describe, expect, it } from 'vitest';
import { relativeError, runStock } from './stock.js';
import { zooFeeds, zooModel } from './zoo.js';

ort.env.wasm.numThreads = 1;

/** Grouped heads, a soft cap, a bias, masks of five axes, cross-attention; exports of both kinds. */
const names = [
  'bart.sdpa.ts17',
  'bert.sdpa.dynamo18',
  'gemma2.eager.ts17',
  'llama.sdpa.dynamo18',
  'swin.sdpa.ts17',
  't5_encoder.eager.ts17',
  'whisper.eager.dynamo18',
];

describe.each<TargetName>(['fused', 'contrib'])('converted for target %s, ONNX Runtime Web', (target) => {
  it.each(names)('runs %s on its CPU', async (name) => {
    const model = zooModel(name);
    const { model: converted } = convertModel(model, { target, crossAttention: true });
    const session = await ort.InferenceSession.create(writeModel(converted), {
      executionProviders: ['wasm'],
      logSeverityLevel: 3,
    });
    const feeds = Object.fromEntries(
      Object.entries(zooFeeds(name)).filter(([input]) => session.inputNames.includes(input)),
    );
    const expected = await runStock(model, feeds);
    const own = Object.entries(feeds).map(([input, { type, data, dims }]) => [
      input,
      new ort.Tensor(type as 'float32', data as Float32Array, dims),
    ]);
    const actual = await session.run(Object.fromEntries(own));
    for (const [output, tensor] of Object.entries(expected)) {
      expect(relativeError(actual[output] as Tensor, tensor as Tensor)).toBeLessThan(1e-4);
    }
    await session.release();
  });
});
