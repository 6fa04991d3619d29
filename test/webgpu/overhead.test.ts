import { useSoftwareVulkan } from '@mxattn/browser';
import { createSession, type InplaceSession } from '@mxattn/ort-op/web';
import { describeGpu } from '@mxattn/ort-op/webgpu-node';
import type { Tensor } from 'onnxruntime-common';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { normal } from '../conformance/random.js';
import { onnx } from '../graph/onnx-text.js';
import { closeWeb, openWeb, type WebRuntime } from './device.js';

if (process.env.MXATTN_GPU === undefined) useSoftwareVulkan();
const description = await describeGpu();
if (typeof description === 'string') console.warn(`skipped: ${description}`);

// On a processor the whole takes minutes: MXATTN_LONG_TESTS=1 runs it.
const [LAYERS, STEPS] = process.env.MXATTN_LONG_TESTS ? [30, 500] : [3, 12];
/** Steps after which nothing is new. */
const WARM = 6;
const WIDTH = 16;
const HEADS = 2;
const SIZE = 8;

/** What calls of WebGPU one step may have in place for each one that ONNX Runtime makes. */
const OVERHEAD = 1.05;

type Calls = Record<string, number>;
type Outputs = Readonly<Record<string, Tensor>>;

// Times are for `npm run bench -- webgpu`; the calls that a step makes are the same on every machine.
describe.skipIf(typeof description === 'string')(`in place with ${LAYERS} layers`, () => {
  let device: GPUDevice;
  let shared: WebRuntime;
  /** Calls that reach the device, and those that ONNX Runtime makes. */
  const reached: Calls = {};
  const asked: Calls = {};
  const made: string[] = [];

  beforeAll(async () => {
    shared = await openWeb();
    device = shared.device;
    countCalls(device, reached, made);
    // From here on dispatches are looked at.
    await (await createSession(onnx(decoder(1)), { ...shared, backend: 'inplace' })).release();
    countCalls(device, asked);
  });

  afterAll(() => {
    closeWeb();
  });

  /** Runs the decoder; gives the calls of its warm steps. */
  async function decode(session: Awaited<ReturnType<typeof createSession>>) {
    const { Tensor } = shared.ort;
    const names = Array.from({ length: LAYERS }, (_, layer) => [`k${layer}`, `v${layer}`]).flat();
    let past: Outputs | undefined;
    const before = { reached: 0, asked: 0, made: 0 };
    for (let step = 0; step < STEPS; step++) {
      if (step === WARM)
        Object.assign(before, { reached: sum(reached), asked: sum(asked), made: made.length });
      const empty = () => new Tensor('float32', new Float32Array(0), [1, HEADS, 0, SIZE]);
      const cache = names.map((name) => [`p${name}`, past?.[`n${name}`] ?? empty()]);
      const x = new Tensor('float32', normal(WIDTH, step), [1, 1, WIDTH]);
      const outputs = (await session.run({ x, ...Object.fromEntries(cache) })) as Outputs;
      for (const name of names) past?.[`n${name}`]?.dispose();
      past = outputs;
    }
    return {
      reached: sum(reached) - before.reached,
      asked: sum(asked) - before.asked,
      made: made.slice(before.made),
    };
  }

  const open = (backend: 'inplace' | 'stock') =>
    createSession(onnx(decoder(LAYERS)), {
      ...shared,
      backend,
      preferredOutputLocation: 'gpu-buffer',
    });

  it('looking at dispatches adds no call', async () => {
    const session = await open('stock');
    const calls = await decode(session);
    expect(calls.asked).toBeGreaterThan((STEPS - WARM) * LAYERS);
    expect(calls.reached).toBe(calls.asked);
    await session.release();
  }, 600_000);

  it('taking attention over adds few, and no buffer', async () => {
    const session = await open('inplace');
    const calls = await decode(session);
    expect((session as InplaceSession).dispatches).toEqual({ inPlace: LAYERS * STEPS, left: {} });
    expect(calls.reached).toBeLessThan(OVERHEAD * calls.asked);
    expect(calls.made).toEqual([]);
    await session.release();
  }, 600_000);
});

const sum = (calls: Calls) => Object.values(calls).reduce((total, each) => total + each, 0);

/** Counts calls of a device, of its queue, and of the passes that are recorded on it; and labels of our buffers. */
function countCalls(device: GPUDevice, calls: Calls, labels: string[] = []): void {
  const count = <T extends object>(
    target: T,
    name: keyof T & string,
    seen?: (result: unknown, args: unknown[]) => void,
  ) => {
    const original = (target[name] as (...args: unknown[]) => unknown).bind(target);
    const value = (...args: unknown[]) => {
      calls[name] = (calls[name] ?? 0) + 1;
      const result = original(...args);
      seen?.(result, args);
      return result;
    };
    Object.defineProperty(target, name, { value, configurable: true, writable: true });
  };
  count(device, 'createBindGroup');
  count(device, 'createBuffer', (_, [descriptor]) => {
    const { label } = descriptor as GPUBufferDescriptor;
    if (label?.startsWith('mxattn')) labels.push(label);
  });
  count(device.queue, 'writeBuffer');
  count(device.queue, 'submit');
  count(device, 'createCommandEncoder', (encoder) => {
    count(encoder as GPUCommandEncoder, 'beginComputePass', (pass) => {
      for (const name of ['setPipeline', 'setBindGroup', 'dispatchWorkgroups'] as const) {
        count(pass as GPUComputePassEncoder, name);
      }
    });
  });
}

/** A decoder of some layers with a cache. */
function decoder(layers: number) {
  const each = <T>(what: (layer: number) => T) => Array.from({ length: layers }, (_, layer) => what(layer));
  const kv = `f32[1,${HEADS},P,${SIZE}]`;
  const present = `f32[1,${HEADS},?,${SIZE}]`;
  const weights = (seed: number) => ({ dims: [WIDTH, WIDTH], data: normal(WIDTH * WIDTH, seed) });
  const attributes = `is_causal=1,q_num_heads=${HEADS},kv_num_heads=${HEADS}`;
  return {
    nodes: each(
      (i) => `
      q${i} = MatMul(h${i}, wq)
      key${i} = MatMul(h${i}, wk)
      value${i} = MatMul(h${i}, wv)
      y${i} nk${i} nv${i} = Attention<${attributes}>(q${i}, key${i}, value${i}, , pk${i}, pv${i})
      h${i + 1} = Tanh(y${i})`,
    )
      .join('\n')
      .replaceAll('(h0,', '(x,'),
    inputs: {
      x: `f32[1,S,${WIDTH}]`,
      ...Object.fromEntries(
        each((i) => [
          [`pk${i}`, kv],
          [`pv${i}`, kv],
        ]).flat(),
      ),
    },
    initializers: { wq: weights(1), wk: weights(2), wv: weights(3) },
    outputs: {
      [`h${layers}`]: `f32[1,S,${WIDTH}]`,
      ...Object.fromEntries(
        each((i) => [
          [`nk${i}`, present],
          [`nv${i}`, present],
        ]).flat(),
      ),
    },
    opset: 23,
  };
}
