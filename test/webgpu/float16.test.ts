/// <reference types="@webgpu/types" />
import { useSoftwareVulkan } from '@mxattn/browser';
import {
  type AttentionSpec,
  type AttentionTensors,
  attentionSpec,
  emulateAttention,
  fromF16,
  type PrecisionName,
  precision,
  toF16,
} from '@mxattn/core';
import { webgpuBackend } from '@mxattn/ort-op/webgpu';
import { describeGpu, openGpu } from '@mxattn/ort-op/webgpu-node';
import { describe, expect, it } from 'vitest';
import { compose } from '../../packages/ort-op/src/webgpu/compose.js';
import { EMULATION_ERROR } from '../conformance/bounds.js';
import { normal, relativeError } from '../conformance/random.js';
import { readBuffer } from './device.js';
import { attendHalves, expectHalves, floatRows, OUTPUT_ERROR, plainRows, rounded } from './halves.js';

const onGpu = process.env.MXATTN_GPU !== undefined;
if (!onGpu) useSoftwareVulkan();
const description = await describeGpu();
if (typeof description === 'string') console.warn(`skipped: ${description}`);

const rows = onGpu ? floatRows : plainRows;

describe.skipIf(typeof description === 'string')('float16 tensors', async () => {
  const { device, adapter } =
    typeof description === 'string' ? { device: undefined!, adapter: undefined! } : await openGpu();
  const matrices = typeof description !== 'string' && description.kernels.mxfp8 !== 'float32';
  const options = { unroll: onGpu, matrix: false };
  const run = (tensors: AttentionTensors, spec: AttentionSpec, name: PrecisionName) =>
    attendHalves(device, tensors, spec, precision(name), options);

  it('reads every half as it is, and rounds what it writes', async () => {
    const halves = Float32Array.from({ length: 65536 }, (_, bits) => fromF16(bits));
    const between = Float32Array.from({ length: 4096 }, (_, i) => 1.37 ** (i % 128) * 2 ** -30 * (i - 2048));
    const numbers = Float32Array.of(
      ...[65504, 65519, 65520, 1e6, -7e30, 2 ** -25, 2 ** -24 * 1.5, 2 ** -14, -(2 ** -26), 1 + 2 ** -11],
      ...between,
    );
    const finite = (x: number) => (Number.isFinite(x) ? Math.max(-65504, Math.min(65504, x)) : x);
    const expected = numbers.map((x) => fromF16(toF16(finite(x))));
    expect(await throughHalves(device, halves)).toEqual(halves);
    expect(await throughHalves(device, numbers)).toEqual(expected);
  });

  it.skipIf(!matrices).each(['mxfp8', 'mxfp6', 'mxfp4'] as const)(
    'gives on matrix units what it gives for float32 tensors: %s',
    async (name) => {
      const floats = webgpuBackend(device, { adapterInfo: adapter.info });
      for (const headSize of [64, 128]) {
        const spec = attentionSpec({
          heads: 4,
          kvHeads: 2,
          queryLength: 150,
          keyLength: 300,
          headSize,
          causal: true,
        });
        const operands = {
          query: rounded(normal(4 * 150 * headSize, 1)),
          key: rounded(normal(2 * 300 * headSize, 2)),
          value: rounded(normal(2 * 300 * headSize, 3)),
          bias: { dims: [4, 1, 300], data: rounded(normal(4 * 300, 4)) },
        };
        const output = await attendHalves(device, operands, spec, precision(name), {
          unroll: true,
          matrix: true,
        });
        const expected = await floats.attention(operands, spec, precision(name));
        expect(relativeError(output, expected)).toBeLessThan(OUTPUT_ERROR);
      }
    },
  );

  // Kernels read and write alike at all that quantise.
  describe.each(['f32', 'mxfp6'] as const)('%s', (name) => {
    it.each(rows)('$name', async (row) => {
      await expectHalves(device, row, name, options);
    });

    it('takes odd sizes, whose rows share words, with a bias and sinks', async () => {
      const spec = attentionSpec({ heads: 3, queryLength: 5, keyLength: 70, headSize: 33, valueHeadSize: 7 });
      const operands = {
        query: rounded(normal(3 * 5 * 33, 1)),
        key: rounded(normal(3 * 70 * 33, 2)),
        value: rounded(normal(3 * 70 * 7, 3)),
        bias: {
          dims: [3, 5, 70],
          data: rounded(normal(3 * 5 * 70, 4)).map((x, i) => (i % 5 ? x : i % 2 ? -65504 : -Infinity)),
        },
        sinks: Float32Array.of(2, -1, 0.5),
      };
      const output = await run(operands, spec, name);
      const expected = emulateAttention(operands, spec, precision(name), { arithmetic: 'f32' });
      expect(relativeError(output, expected)).toBeLessThan(EMULATION_ERROR + OUTPUT_ERROR);
    });

    it('keeps NaN, and finite values finite', async () => {
      const spec = attentionSpec({ heads: 1, queryLength: 3, keyLength: 70, headSize: 64 });
      const query = rounded(normal(3 * 64, 1));
      query[70] = NaN;
      const key = rounded(normal(70 * 64, 2));
      const value = new Float32Array(70 * 64).fill(65504);
      const output = await run({ query, key, value }, spec, name);
      expect(output.slice(64, 128).every(Number.isNaN)).toBe(true);
      for (const x of [...output.slice(0, 64), ...output.slice(128)]) {
        expect(x).toBeLessThanOrEqual(65504);
        expect(x).toBeGreaterThan(60000);
      }
    });
  });
});

/** Numbers written as halves and read again, by the functions of tensors.wgsl. */
async function throughHalves(device: GPUDevice, numbers: Float32Array<ArrayBuffer>): Promise<Float32Array> {
  const code = `${compose(['tensors'], { HALVES: true }, { unroll: false })}
    @group(0) @binding(0) var<storage, read_write> numbers: array<vec4<f32>>;
    @group(0) @binding(1) var<storage, read_write> halves: array<Quad>;
    @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
      let at = id.x;
      if (at >= arrayLength(&numbers)) { return; }
      halves[at] = quadOf(numbers[at]);
      let four = fourOf(halves[at]);
      for (var i = 0u; i < 4u; i++) {
        // Both ways of reading.
        let element = elementOf(halves[at][i / 2u], 4u * at + i);
        numbers[at][i] = select(four[i], 0f, bitcast<u32>(element) != bitcast<u32>(four[i]));
      }
    }`;
  const { STORAGE, COPY_SRC, COPY_DST } = GPUBufferUsage;
  const size = Math.ceil(numbers.byteLength / 16) * 16;
  const buffer = device.createBuffer({ size, usage: STORAGE | COPY_SRC | COPY_DST });
  const halves = device.createBuffer({ size: size / 2, usage: STORAGE });
  device.queue.writeBuffer(buffer, 0, numbers);
  const pipeline = await device.createComputePipelineAsync({
    layout: 'auto',
    compute: { module: device.createShaderModule({ code }) },
  });
  const entries = [buffer, halves].map((each, binding) => ({ binding, resource: { buffer: each } }));
  const encoder = device.createCommandEncoder();
  const pass = encoder.beginComputePass();
  pass.setPipeline(pipeline);
  pass.setBindGroup(0, device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries }));
  pass.dispatchWorkgroups(Math.ceil(size / 16 / 64));
  pass.end();
  device.queue.submit([encoder.finish()]);
  return new Float32Array(await readBuffer(device, buffer), 0, numbers.length);
}
