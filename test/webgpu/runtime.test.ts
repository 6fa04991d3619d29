import { useSoftwareVulkan } from '@mxattn/browser';
import { describeGpu, webRuntime } from '@mxattn/ort-op/webgpu-node';
import { afterAll, describe, expect, it } from 'vitest';
import { onnx } from '../graph/onnx-text.js';

if (process.env.MXATTN_GPU === undefined) useSoftwareVulkan();
const description = await describeGpu();
if (typeof description === 'string') console.warn(`skipped: ${description}`);

describe.skipIf(typeof description === 'string')('onnxruntime-web in Node.js', () => {
  // With it the process would not end.
  afterAll(() => {
    Reflect.deleteProperty(globalThis, 'navigator');
  });

  it('runs a model on the GPU', async () => {
    const ort = await webRuntime();
    const dims = 'f32[2,3]';
    const model = onnx({ nodes: 'c = Add(a, b)', inputs: { a: dims, b: dims }, outputs: { c: dims } });
    const session = await ort.InferenceSession.create(model, { executionProviders: ['webgpu'] });
    const tensor = (...data: number[]) => new ort.Tensor('float32', Float32Array.from(data), [2, 3]);
    const { c } = await session.run({ a: tensor(1, 2, 3, 4, 5, 6), b: tensor(10, 20, 30, 40, 50, 60) });
    expect([...((await c!.getData()) as Float32Array)]).toEqual([11, 22, 33, 44, 55, 66]);
    await session.release();
  });
});
