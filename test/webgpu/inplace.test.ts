import { readFileSync, rmSync } from 'node:fs';
import { useSoftwareVulkan } from '@mxattn/browser';
import { createSession as createNativeSession } from '@mxattn/ort-op';
import { createSession, InplaceSession } from '@mxattn/ort-op/web';
import { interceptDispatches } from '@mxattn/ort-op/webgpu';
import { describeGpu } from '@mxattn/ort-op/webgpu-node';
import type { Tensor } from 'onnxruntime-common';
import { Tensor as NodeTensor } from 'onnxruntime-node';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { relativeError } from '../conformance/random.js';
import { noise } from '../graph/noise.js';
import { type ModelText, onnx } from '../graph/onnx-text.js';
import { writeFamilies } from '../patch/families.js';
import { closeWeb, openWeb, type WebRuntime } from './device.js';

if (process.env.MXATTN_GPU === undefined) useSoftwareVulkan();
const description = await describeGpu();
if (typeof description === 'string') console.warn(`skipped: ${description}`);

describe.skipIf(typeof description === 'string')('in place in Node.js', () => {
  let device: GPUDevice;
  let shared: WebRuntime;
  let folder: string;

  beforeAll(async () => {
    shared = await openWeb();
    device = shared.device;
    folder = writeFamilies();
  });

  afterAll(() => {
    rmSync(folder, { recursive: true });
    closeWeb();
  });

  it('a program of somebody else is replaced on one device, and put back', async () => {
    const code = (value: number) => `
      struct Uniforms { count: u32, factor: f32 };
      @group(0) @binding(0) var<storage, read_write> numbers: array<f32>;
      @group(0) @binding(1) var<uniform> uniforms: Uniforms;
      @compute @workgroup_size(4) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        numbers[id.x] = ${value}f * uniforms.factor * f32(uniforms.count);
      }`;
    const run = async (label: string) => {
      const module = device.createShaderModule({ label, code: code(1) });
      const pipeline = device.createComputePipeline({ layout: 'auto', compute: { module } });
      const { STORAGE, COPY_SRC, COPY_DST, MAP_READ, UNIFORM } = GPUBufferUsage;
      const numbers = device.createBuffer({ size: 16, usage: STORAGE | COPY_SRC });
      const uniforms = device.createBuffer({ size: 16, usage: UNIFORM | COPY_DST });
      const readable = device.createBuffer({ size: 16, usage: MAP_READ | COPY_DST });
      device.queue.writeBuffer(uniforms, 0, Uint32Array.of(3));
      device.queue.writeBuffer(uniforms, 4, Float32Array.of(2));
      device.queue.writeBuffer(uniforms, 0, new Uint8Array(new Float32Array([0, 2]).buffer).fill(3, 0, 1));
      const entries = [
        { binding: 0, resource: { buffer: numbers } },
        { binding: 1, resource: { buffer: uniforms } },
      ];
      const group = device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries });
      const encoder = device.createCommandEncoder();
      const pass = encoder.beginComputePass();
      pass.setPipeline(pipeline);
      pass.setBindGroup(0, group);
      pass.dispatchWorkgroups(1);
      pass.end();
      encoder.copyBufferToBuffer(numbers, 0, readable, 0, 16);
      device.queue.submit([encoder.finish()]);
      await readable.mapAsync(GPUMapMode.READ);
      return new Float32Array(readable.getMappedRange().slice(0))[0];
    };
    const seen: unknown[] = [];
    const module = device.createShaderModule({ code: code(100) });
    const other = device.createComputePipeline({ layout: 'auto', compute: { module } });
    const interception = interceptDispatches(device, {
      theirs: (dispatch, record) => {
        seen.push(dispatch.uniform('count'), dispatch.uniform('factor'), dispatch.workgroups);
        const entries = ['numbers', 'uniforms'].map((name, binding) => ({
          binding,
          resource: dispatch.buffer(name)!,
        }));
        record((pass) => {
          pass.setPipeline(other);
          pass.setBindGroup(0, device.createBindGroup({ layout: other.getBindGroupLayout(0), entries }));
          pass.dispatchWorkgroups(1);
        });
        return true;
      },
    });
    expect(await run('theirs')).toBe(600);
    expect(seen).toEqual([3, 2, [1, 1, 1]]);
    expect(await run('another')).toBe(6);
    interception.release();
    expect(await run('theirs')).toBe(6);
    expect(Object.keys(device)).not.toContain('createBindGroup');
  });

  it('attention is computed by our kernels, at f32 as on the CPU', async () => {
    const bytes = readFileSync(`${folder}vit/onnx/model.onnx`);
    const { ort } = shared;
    const pixels = new ort.Tensor('float32', noise(3 * 32 * 32, 7), [1, 3, 32, 32]);
    const cpu = await createNativeSession(bytes, { backend: 'stock' });
    const expected = await cpu.run({
      pixel_values: new NodeTensor('float32', pixels.data as Float32Array, pixels.dims),
    });
    const logits = expected.logits!.data as Float32Array;
    const run = async (options: object) => {
      const session = await createSession(bytes, { ...shared, ...options });
      const { logits } = await session.run({ pixel_values: pixels });
      const counts = session instanceof InplaceSession ? session.dispatches : undefined;
      return { logits: (await logits!.getData()) as Float32Array, counts };
    };
    const f32 = await run({ backend: 'inplace' });
    const mxfp6 = await run({ backend: 'inplace', precision: 'mxfp6' });
    expect(f32.counts).toEqual({ inPlace: 2, left: {} });
    expect(mxfp6.counts).toEqual({ inPlace: 2, left: {} });
    expect(relativeError(f32.logits, logits)).toBeLessThan(1e-4);
    expect(relativeError(mxfp6.logits, logits)).toBeGreaterThan(1e-4);
    expect(relativeError(mxfp6.logits, logits)).toBeLessThan(0.1);
  });

  it('causal attention is GroupQueryAttention, and computed by our kernels', async () => {
    const { ort } = shared;
    const model = onnx(causal(''));
    const session = await createSession(model, { ...shared, backend: 'inplace' });
    const cpu = await createNativeSession(model, { backend: 'stock' });
    // Many tokens, and few of them, which ONNX Runtime computes in another way.
    for (const length of [40, 5]) {
      const x = noise(length * 12, 8);
      const { y } = await session.run({ x: new ort.Tensor('float32', x, [1, length, 12]) });
      const expected = await cpu.run({ x: new NodeTensor('float32', x, [1, length, 12]) });
      const actual = (await y!.getData()) as Float32Array;
      expect(relativeError(actual, expected.y!.data as Float32Array)).toBeLessThan(1e-5);
    }
    expect((session as InplaceSession).dispatches).toEqual({ inPlace: 2, left: {} });
  });

  it.each([
    { name: 'a soft cap', attributes: ',softcap=2.0' },
    { name: 'several sequences', attributes: '', batch: 2 },
  ])('$name in causal attention is known from the model', async ({ attributes, batch = 1 }) => {
    const { ort } = shared;
    const model = onnx(causal(attributes));
    const session = await createSession(model, { ...shared, backend: 'inplace' });
    const cpu = await createNativeSession(model, { backend: 'stock' });
    for (const length of [40, 5]) {
      const x = noise(batch * length * 12, 8).map((each) => 4 * each);
      const { y } = await session.run({ x: new ort.Tensor('float32', x, [batch, length, 12]) });
      const expected = await cpu.run({ x: new NodeTensor('float32', x, [batch, length, 12]) });
      const actual = (await y!.getData()) as Float32Array;
      expect(relativeError(actual, expected.y!.data as Float32Array)).toBeLessThan(1e-5);
    }
    expect((session as InplaceSession).dispatches).toEqual({ inPlace: 2, left: {} });
  });

  it('sinks are taken from its programs', async () => {
    const { ort } = shared;
    const model = onnx(sunk());
    const session = await createSession(model, { ...shared, backend: 'inplace' });
    const cpu = await createNativeSession(model, { backend: 'stock' });
    for (const length of [40, 5]) {
      const feeds = (Type: typeof NodeTensor) => ({
        x: new Type('float32', noise(length * 12, 8), [1, length, 12]),
        lengths: new Type('int32', Int32Array.of(length - 1), [1]),
        total: new Type('int32', Int32Array.of(length), [1]),
      });
      // Until the kernels are compiled ONNX Runtime's own run, which are wrong on some devices.
      let y: Tensor | undefined;
      for (let attempt = 0; attempt < 20 && !(session as InplaceSession).dispatches.inPlace; attempt++) {
        ({ y } = await session.run(feeds(ort.Tensor as typeof NodeTensor)).catch(() => ({ y: undefined })));
        await new Promise((resolve) => setTimeout(resolve, 1000));
      }
      ({ y } = await session.run(feeds(ort.Tensor as typeof NodeTensor)));
      const expected = await cpu.run(feeds(NodeTensor));
      const actual = (await y!.getData()) as Float32Array;
      expect(relativeError(actual, expected.y!.data as Float32Array)).toBeLessThan(1e-5);
    }
  });

  it('refuses what it would compute differently', async () => {
    const windowed = onnx(sunk(',local_window_size=3'));
    const create = (options: object) => createSession(windowed, { ...shared, ...options });
    await expect(create({ backend: 'inplace' })).rejects.toThrow(/node_y has a window/);
    const { report } = await create({});
    expect(['carrier', 'split']).toContain(report.backend);
    expect(report.reason).toMatch(/has a window, which is not supported in place/);
    await expect(create({ precision: 'efq4' })).rejects.toThrow(/WebGPU kernels do not have precision efq4/);
    await expect(create({ backend: 'gpu' })).rejects.toThrow(
      /unknown backend "gpu"; there are auto, inplace/,
    );
    // ONNX Runtime's GroupQueryAttention forgets it there.
    const carried = createSession(onnx(causal(',softcap=2.0')), { ...shared, backend: 'carrier' });
    await expect(carried).rejects.toThrow(/leaves out the soft cap/);
  });

  it('decoding makes no buffers after the first steps, and gives what the CPU gives', async () => {
    const bytes = readFileSync(`${folder}gpt2/onnx/model.onnx`);
    const { ort } = shared;
    const session = await createSession(bytes, { ...shared, backend: 'inplace' });
    const cpu = await createNativeSession(bytes, { kvCache: 'tensors', threads: 2 });
    const made: string[] = [];
    const createBuffer = device.createBuffer.bind(device);
    device.createBuffer = (descriptor) => {
      if (descriptor.label?.startsWith('mxattn')) made.push(descriptor.label);
      return createBuffer(descriptor);
    };
    type Outputs = Record<string, Tensor>;
    const feeds = (Type: typeof NodeTensor, ids: number[], past: Outputs | undefined, length: number) => {
      const integers = (values: number[]) =>
        new Type('int64', BigInt64Array.from(values, BigInt), [1, values.length]);
      const cache = ['0.key', '0.value', '1.key', '1.value'].map((name) => [
        `past_key_values.${name}`,
        past?.[`present.${name}`] ?? new Type('float32', new Float32Array(0), [1, 4, 0, 16]),
      ]);
      return {
        input_ids: integers(ids),
        attention_mask: integers(Array<number>(length).fill(1)),
        position_ids: integers(ids.map((_, i) => length - ids.length + i)),
        ...Object.fromEntries(cache),
      };
    };
    let ours: Outputs | undefined;
    let theirs: Outputs | undefined;
    let warm = 0;
    for (let step = 0, length = 40; step < 12; step++, length++) {
      const ids = step === 0 ? Array.from({ length: 40 }, (_, i) => (i * 7) % 90) : [(step * 13) % 90];
      ours = (await session.run(feeds(ort.Tensor, ids, ours, length))) as Outputs;
      theirs = (await cpu.run(feeds(NodeTensor, ids, theirs, length))) as Outputs;
      const [a, b] = [await ours.logits!.getData(), await theirs.logits!.getData()] as [
        Float32Array,
        Float32Array,
      ];
      expect(relativeError(a, b)).toBeLessThan(1e-4);
      if (step === 2) warm = made.length;
    }
    expect((session as InplaceSession).dispatches).toEqual({ inPlace: 24, left: {} });
    expect(warm).toBeGreaterThan(0);
    expect(made.length).toBe(warm);
    Reflect.deleteProperty(device, 'createBuffer');
  });
});

/** Causal attention of one sequence, two query heads that share one of keys. */
function causal(attributes: string): ModelText {
  return {
    nodes: `
      q = MatMul(x, wq)
      k = MatMul(x, wk)
      v = MatMul(x, wv)
      y = Attention<is_causal=1,q_num_heads=2,kv_num_heads=1${attributes}>(q, k, v)`,
    inputs: { x: 'f32[B,S,12]' },
    initializers: {
      wq: { dims: [12, 32], data: noise(12 * 32, 1) },
      wk: { dims: [12, 16], data: noise(12 * 16, 2) },
      wv: { dims: [12, 16], data: noise(12 * 16, 3) },
    },
    outputs: { y: 'f32[B,S,32]' },
    opset: 23,
  };
}

/** ONNX Runtime's own causal attention, with sinks. */
function sunk(attributes = ''): ModelText {
  const { nodes, inputs, initializers, ...rest } = causal('');
  return {
    ...rest,
    nodes: nodes.replace(
      /y = .*/,
      `y pk pv = com.microsoft.GroupQueryAttention<num_heads=2,kv_num_heads=1${attributes}>(q, k, v, , , lengths, total, , , , , sink)`,
    ),
    inputs: { ...inputs, lengths: 'i32[B]', total: 'i32[1]' },
    initializers: { ...initializers, sink: { dims: [2], data: Float32Array.of(0.5, -1) } },
  };
}
