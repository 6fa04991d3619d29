import { readFileSync, rmSync } from 'node:fs';
import { useSoftwareVulkan } from '@mxattn/browser';
import { createSession as createNativeSession, writeModel } from '@mxattn/ort-op';
import { createSession } from '@mxattn/ort-op/web';
import { describeGpu, openGpu } from '@mxattn/ort-op/webgpu-node';
import type { Tensor } from 'onnxruntime-common';
import { Tensor as NodeTensor } from 'onnxruntime-node';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { relativeError } from '../conformance/random.js';
import { noise } from '../graph/noise.js';
import { zooFeeds, zooModel } from '../graph/zoo.js';
import { writeFamilies } from '../patch/families.js';
import { closeWeb, openWeb, type WebRuntime } from './device.js';

if (process.env.MXATTN_GPU === undefined) useSoftwareVulkan();
const description = await describeGpu();
if (typeof description === 'string') console.warn(`skipped: ${description}`);

const backends = process.env.MXATTN_LONG_TESTS
  ? (['stock', 'split', 'inplace'] as const)
  : (['stock'] as const);

describe.skipIf(typeof description === 'string')('models cut at their attentions, in onnxruntime-web', () => {
  let shared: WebRuntime;
  let folder: string;

  beforeAll(async () => {
    shared = await openWeb();
    folder = writeFamilies();
  });

  afterAll(() => {
    rmSync(folder, { recursive: true });
    closeWeb();
  });

  it('computes on WebGPU what the CPU computes, by the precision of each step', async () => {
    const { ort, device } = shared;
    const bytes = readFileSync(`${folder}vit/onnx/model.onnx`);
    const pixels = new ort.Tensor('float32', noise(3 * 32 * 32, 7), [1, 3, 32, 32]);
    const cpu = await createNativeSession(bytes, { backend: 'stock' });
    const { logits: expected } = await cpu.run({
      pixel_values: new NodeTensor('float32', pixels.data as Float32Array, pixels.dims),
    });
    const session = await createSession(bytes, { ...shared, backend: 'split', schedule: '1:f32/2:mxfp6' });
    expect(session.report.backend).toBe('split');
    expect(session.report.replaced).toHaveLength(2);
    expect([session.inputNames, session.outputNames]).toEqual([['pixel_values'], ['logits']]);
    let buffers = 0;
    const createBuffer = device!.createBuffer.bind(device);
    device!.createBuffer = (descriptor) => {
      if (descriptor.label?.startsWith('mxattn')) buffers++;
      return createBuffer(descriptor);
    };
    const errorAt = async (step: number) => {
      const { logits } = await session.run({ pixel_values: pixels }, { step });
      return relativeError((await logits!.getData()) as Float32Array, expected!.data as Float32Array);
    };
    expect(await errorAt(0)).toBeLessThan(1e-4);
    const rounded = await errorAt(1);
    expect(rounded).toBeGreaterThan(1e-4);
    expect(rounded).toBeLessThan(0.1);
    const warm = buffers;
    expect(await errorAt(2)).toBe(rounded);
    expect(buffers).toBe(warm);
    Reflect.deleteProperty(device!, 'createBuffer');
    await session.release();
  });

  it('takes results that are operands, too, and gives them where they are wanted', async () => {
    const { ort } = shared;
    const model = zooModel('llama.sdpa.ts17');
    const cpu = await createNativeSession(writeModel(model), { backend: 'stock' });
    const given = zooFeeds('llama.sdpa.ts17');
    const expected = await cpu.run(given);
    const feeds = Object.fromEntries(
      Object.entries(given).map(([name, { type, data, dims }]) => [
        name,
        new ort.Tensor(type as 'float32', data as Float32Array, dims),
      ]),
    );
    const [first] = Object.keys(expected) as [string];
    for (const location of ['cpu', 'gpu-buffer'] as const) {
      const session = await createSession(writeModel(model), {
        ...shared,
        backend: 'split',
        preferredOutputLocation: location,
      });
      const outputs = await session.run(feeds);
      expect(Object.keys(outputs)).toEqual(Object.keys(expected));
      expect(outputs[first]!.location).toBe(location);
      for (const [name, tensor] of Object.entries(outputs)) {
        const data = (await (tensor as Tensor).getData()) as Float32Array;
        expect(relativeError(data, expected[name]!.data as Float32Array)).toBeLessThan(1e-4);
        tensor.dispose();
      }
      await session.release();
    }
  });

  // The same check in all of them; MXATTN_LONG_TESTS=1 compiles kernels for it.
  it.each(backends)('a lost device is told, and a new one works: %s', async (backend) => {
    const { ort } = shared;
    const bytes = readFileSync(`${folder}vit/onnx/model.onnx`);
    const feeds = { pixel_values: new ort.Tensor('float32', noise(3 * 32 * 32, 7), [1, 3, 32, 32]) };
    const opened = async () => {
      const { adapter, device } = await openGpu();
      return {
        device,
        session: await createSession(bytes, { ort, device, adapterInfo: adapter.info, backend }),
      };
    };
    const first = await opened();
    await first.session.run(feeds);
    first.device.destroy();
    await expect(first.session.run(feeds)).rejects.toThrow(
      /device of this session was lost \(destroyed.*; create the session again/,
    );
    const second = await opened();
    const { logits } = await second.session.run(feeds);
    expect(logits!.dims[0]).toBe(1);
    await second.session.release();
  });

  it('says what it cannot do', async () => {
    const bytes = readFileSync(`${folder}vit/onnx/model.onnx`);
    const wasm = { ...shared, executionProvider: 'wasm' } as const;
    await expect(createSession(bytes, { ...wasm, precision: 'mxfp8' })).rejects.toThrow(
      'the WebAssembly kernels do not have precision mxfp8; they have f32, mxfp6, mxfp4',
    );
    await expect(createSession(bytes, { ...wasm, backend: 'inplace' })).rejects.toThrow(
      'unknown backend "inplace" on WebAssembly; there are auto, split, stock',
    );
    const wrong = { ...shared, executionProvider: 'cpu' as 'wasm' };
    await expect(createSession(bytes, wrong)).rejects.toThrow(
      'unknown executionProvider "cpu"; there are webgpu, wasm',
    );
  });
});
