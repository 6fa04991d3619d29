/// <reference types="@webgpu/types" />
import { useSoftwareVulkan } from '@mxattn/browser';
import { attentionSpec, fromF16, recipes } from '@mxattn/core';
import { describeGpu, openGpu } from '@mxattn/ort-op/webgpu-node';
import { beforeAll, describe, expect, it } from 'vitest';
import * as kernels from '../../packages/ort-op/src/webgpu/kernels.js';
import { packedSizes, problemUniform } from '../../packages/ort-op/src/webgpu/problem.js';
import { channelsOf, shapeClass } from '../../packages/ort-op/src/webgpu/shape-class.js';
import { bindings, compiled } from '../../packages/ort-op/src/webgpu/steps.js';
import { normal } from '../conformance/random.js';
import { readBuffer, submit } from './device.js';

if (process.env.MXATTN_GPU === undefined) useSoftwareVulkan();
const description = await describeGpu();
if (typeof description === 'string') console.warn(`skipped: ${description}`);

const SIZE = 64;
const TOKENS = 120;
const ROWS = 128;

// What matrix units get, on devices without them: operands under few scales are those that were quantised.
describe.skipIf(typeof description === 'string')('operands for matrix units', () => {
  let device: GPUDevice;

  beforeAll(async () => {
    ({ device } = await openGpu());
  });

  const buffer = (
    bytes: number,
    data?: Float32Array<ArrayBuffer> | Uint32Array<ArrayBuffer>,
    usage = GPUBufferUsage.STORAGE,
  ) => {
    const made = device.createBuffer({
      size: Math.ceil(bytes / 256) * 256,
      usage: usage | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST,
    });
    if (data) device.queue.writeBuffer(made, 0, data);
    return made;
  };

  const read = (source: GPUBuffer) => readBuffer(device, source);

  function run(
    pipeline: GPUComputePipeline,
    workgroups: readonly [number, number, number],
    resources: Parameters<typeof bindings>,
  ): void {
    submit(device, [{ name: 'step', pipeline, bindings: bindings(...resources), workgroups }]);
  }

  it.each(['mxfp8', 'mxfp6', 'mxfp4'] as const)('%s', async (name) => {
    const recipe = recipes[name];
    const floats = name === 'mxfp8';
    const spec = attentionSpec({ heads: 1, queryLength: 1, keyLength: TOKENS, headSize: SIZE });
    const shape = shapeClass(spec, { bias: false, sinks: false });
    const sizes = packedSizes(spec, channelsOf(shape), floats);
    const [quantiseKeys, quantiseValues, alignKeys, topScales, alignValues] = await compiled(device, [
      kernels.quantiseRows(shape, recipe, true),
      kernels.quantiseValues(shape, recipe, true),
      kernels.alignRows(shape, recipe, true),
      kernels.topValueScales(shape, recipe),
      kernels.alignValues(shape, recipe),
    ]);
    const problem = buffer(256, problemUniform(spec, sizes, [0, 0, 0, 0]), GPUBufferUsage.UNIFORM);
    // Channels of several sizes.
    const data = normal(TOKENS * SIZE, 1).map(
      (x, i) => x * 2 ** ((i % SIZE) % 3),
    ) as Float32Array<ArrayBuffer>;
    const input = buffer(data.byteLength, data);
    const bytes = ROWS * SIZE * (floats ? 2 : 1);
    const [packedKeys, packedValues] = [buffer(sizes.keys), buffer(sizes.valueScales)];
    const [scales, units, unsuited] = [buffer(sizes.values), buffer(SIZE * 4), buffer(4)];
    const [keys, keyScales, values] = [buffer(bytes), buffer(256), buffer(bytes)];
    const { groupRows } = kernels.rowGroups(shape);
    run(quantiseKeys, [ROWS / groupRows, 1, 1], [problem, input, packedKeys]);
    run(quantiseValues, [1, ROWS / 32, 1], [problem, input, packedValues, scales, unsuited]);
    run(alignKeys, [ROWS / kernels.ALIGNED_ROWS, 1, 1], [problem, packedKeys, keys, keyScales, unsuited]);
    run(topScales, [SIZE / 32, 1, 1], [problem, scales, units, unsuited]);
    const blockScales = floats ? undefined : scales;
    run(alignValues, [1, ROWS / 32, 1], [problem, packedValues, blockScales, units, values]);

    expect(new Uint32Array(await read(unsuited))[0]).toBe(0);
    const aligned = (raw: ArrayBuffer) =>
      floats ? Float32Array.from(new Uint16Array(raw), fromF16) : Float32Array.from(new Int8Array(raw));
    // Integers may lose to the shift what does not fit, half a unit; float16 holds all.
    const lost = floats ? 0 : 0.5;

    const alignedKeys = aligned(await read(keys));
    const keyUnits = new Float32Array(await read(keyScales));
    const quantisedKeys = numbersOfRows(await read(packedKeys), floats);
    let largest = 0;
    for (let i = 0; i < TOKENS * SIZE; i++) {
      const unit = keyUnits[Math.floor(i / SIZE / kernels.ALIGNED_ROWS)]!;
      expect(Math.abs(alignedKeys[i]! - quantisedKeys[i]! / unit)).toBeLessThanOrEqual(lost);
      largest = Math.max(largest, Math.abs(alignedKeys[i]!));
    }
    expect(largest).toBeGreaterThan(floats ? 255 : 40);

    const alignedValues = aligned(await read(values));
    const valueUnits = new Float32Array(await read(units));
    const quantisedValues = numbersOfValues(await read(packedValues), await read(scales), floats);
    for (let token = 0; token < TOKENS; token++) {
      for (let channel = 0; channel < SIZE; channel++) {
        const at = ((token >> 5) * SIZE + channel) * 32 + placeOf(token % 32, floats);
        // Integers are biased by 128.
        const raw = alignedValues[at]!;
        const element = floats ? raw : raw + (raw < 0 ? 128 : -128);
        const expected = quantisedValues(token, channel) / valueUnits[channel]!;
        expect(Math.abs(element - expected)).toBeLessThanOrEqual(lost);
      }
    }
  });
});

/** Where attend_matrix.wgsl has the weight of a token: fours 0 2 4 6 1 3 5 7, and in float16 of each four 0 2 1 3. */
function placeOf(token: number, floats: boolean): number {
  const four = token >> 2;
  const inFour = token % 4;
  return ((four >> 1) + (four % 2) * 4) * 4 + (floats ? [0, 2, 1, 3][inFour]! : inFour);
}

/** Of packed rows: float32, or integers and behind them the scales of their blocks of 32. */
function numbersOfRows(raw: ArrayBuffer, floats: boolean): Float32Array {
  if (floats) return new Float32Array(raw);
  const rowBytes = SIZE + 16;
  const result = new Float32Array(TOKENS * SIZE);
  for (let i = 0; i < result.length; i++) {
    const row = Math.floor(i / SIZE) * rowBytes;
    const scales = new Float32Array(raw, row + SIZE, SIZE / 32);
    result[i] = new Int8Array(raw, row, SIZE)[i % SIZE]! * scales[Math.floor((i % SIZE) / 32)]!;
  }
  return result;
}

/** Of packed values, by token and channel. */
function numbersOfValues(raw: ArrayBuffer, scales: ArrayBuffer, floats: boolean) {
  const numbers = new Float32Array(raw);
  const integers = new Int8Array(raw);
  const ofBlocks = new Float32Array(scales);
  return (token: number, channel: number) => {
    if (floats) return numbers[token * SIZE + channel]!;
    const line = (token >> 5) * SIZE + channel;
    return integers[line * 32 + (token % 32)]! * ofBlocks[line]!;
  };
}
