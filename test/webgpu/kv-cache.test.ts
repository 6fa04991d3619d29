/// <reference types="@webgpu/types" />
import { useSoftwareVulkan } from '@mxattn/browser';
import {
  attentionSpec,
  type BlockScheme,
  conventional,
  dequantizeBlocks,
  emulateAttention,
  MxattnError,
  quantizeBlocks,
  recipes,
  tensorView,
  toF16,
} from '@mxattn/core';
import { encode, KvCache, type Step } from '@mxattn/ort-op/webgpu';
import { describeGpu, openGpu } from '@mxattn/ort-op/webgpu-node';
import { describe, expect, it } from 'vitest';
import { normal, relativeError } from '../conformance/random.js';
import { readHalves, rounded } from './halves.js';

if (process.env.MXATTN_GPU === undefined) useSoftwareVulkan();
const description = await describeGpu();
if (typeof description === 'string') console.warn(`skipped: ${description}`);

/** Of weights in 127 steps of each panel's largest against exact ones. */
const WEIGHT_ERROR = 0.02;

const { mxfp4 } = recipes;

describe.skipIf(typeof description === 'string')('packed cache', async () => {
  const { device } = typeof description === 'string' ? { device: undefined! } : await openGpu();

  function buffer(data: Float32Array<ArrayBuffer> | Uint16Array<ArrayBuffer> | number): GPUBuffer {
    const made = device.createBuffer({
      size: typeof data === 'number' ? data * 4 : data.byteLength,
      usage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST | GPUBufferUsage.COPY_SRC,
    });
    if (typeof data !== 'number') device.queue.writeBuffer(made, 0, data);
    return made;
  }

  function run(steps: readonly Step[]): void {
    const encoder = device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    encode(device, pass, steps);
    pass.end();
    device.queue.submit([encoder.finish()]);
  }

  async function read(source: GPUBuffer): Promise<Float32Array> {
    const readable = device.createBuffer({
      size: source.size,
      usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST,
    });
    const encoder = device.createCommandEncoder();
    encoder.copyBufferToBuffer(source, 0, readable, 0, source.size);
    device.queue.submit([encoder.finish()]);
    await readable.mapAsync(GPUMapMode.READ);
    const data = new Float32Array(readable.getMappedRange().slice(0));
    readable.destroy();
    return data;
  }

  /** The first tokens of each head. */
  function tokens(data: Float32Array, heads: number, total: number, count: number, size: number) {
    const part = new Float32Array(heads * count * size);
    for (let h = 0; h < heads; h++) {
      part.set(data.subarray(h * total * size, (h * total + count) * size), h * count * size);
    }
    return part;
  }

  /** Values as the cache has them: whole panels quantised, the newest tokens as they are. */
  function cached(values: Float32Array, heads: number, length: number, size: number): Float32Array {
    const view = tensorView({ batch: 1, heads, sequence: length, channels: size }, 'BHSD', 'sequence');
    const quantised = quantizeBlocks(values, view, mxfp4.value as BlockScheme);
    const result = dequantizeBlocks(quantised, view, values.slice());
    for (let h = 0; h < heads; h++) {
      const newest = (h * length + (length - (length % 32))) * size;
      result.set(values.subarray(newest, (h + 1) * length * size), newest);
    }
    return result;
  }

  it.each([
    { heads: 8, kvHeads: 2, headSize: 64, filled: 70, steps: 28, elementType: 'float32' as const },
    { heads: 4, kvHeads: 4, headSize: 64, filled: 0, steps: 3, elementType: 'float32' as const },
    { heads: 12, kvHeads: 2, headSize: 128, filled: 250, steps: 8, elementType: 'float32' as const },
    {
      heads: 4,
      kvHeads: 1,
      headSize: 64,
      filled: 40,
      steps: 2,
      windowLeft: 9,
      elementType: 'float32' as const,
    },
    { heads: 6, kvHeads: 1, headSize: 64, filled: 62, steps: 4, elementType: 'float16' as const },
  ])('$heads/$kvHeads heads of $headSize after $filled tokens, $elementType', async (shape) => {
    const { heads, kvHeads, headSize, filled, steps, windowLeft, elementType } = shape;
    const halves = elementType === 'float16';
    const numbers = (count: number, seed: number) => {
      const data = normal(count, seed);
      return halves ? rounded(data) : data;
    };
    const stored = (data: Float32Array) =>
      halves ? Uint16Array.from(data, toF16) : (data as Float32Array<ArrayBuffer>);
    const total = filled + steps;
    const cache = await KvCache.create(device, {
      batch: 1,
      heads,
      kvHeads,
      headSize,
      capacity: total,
      elementType,
      ...(windowLeft === undefined ? {} : { windowLeft }),
    });
    const keys = numbers(kvHeads * total * headSize, 1);
    const values = numbers(kvHeads * total * headSize, 2);
    const part = (data: Float32Array, count: number) => tokens(data, kvHeads, total, count, headSize);
    if (filled > 0) {
      const filling = cache.fill(
        buffer(stored(part(keys, filled))),
        buffer(stored(part(values, filled))),
        filled,
      );
      run(filling.steps);
      filling.release();
    }
    const buffers = {
      query: buffer(heads * headSize),
      key: buffer(kvHeads * headSize),
      value: buffer(kvHeads * headSize),
      output: buffer(heads * headSize),
    };
    for (let length = filled + 1; length <= total; length++) {
      const query = numbers(heads * headSize, 100 + length);
      device.queue.writeBuffer(buffers.query, 0, stored(query));
      for (const [name, data] of [
        ['key', keys],
        ['value', values],
      ] as const) {
        const token = new Float32Array(kvHeads * headSize);
        for (let h = 0; h < kvHeads; h++) {
          const start = (h * total + length - 1) * headSize;
          token.set(data.subarray(start, start + headSize), h * headSize);
        }
        device.queue.writeBuffer(buffers[name], 0, stored(token));
      }
      run(cache.step(buffers));
      expect(cache.length).toBe(length);
      const spec = attentionSpec({
        heads,
        kvHeads,
        queryLength: 1,
        keyLength: length,
        headSize,
        window: windowLeft === undefined ? null : { left: windowLeft, right: 0 },
      });
      const expected = emulateAttention(
        { query, key: part(keys, length), value: cached(part(values, length), kvHeads, length, headSize) },
        spec,
        { ...mxfp4, value: null, softmax: conventional(null) },
        { arithmetic: 'f32' },
      );
      const output = halves
        ? await readHalves(device, buffers.output, heads * headSize)
        : await read(buffers.output);
      expect(relativeError(output, expected)).toBeLessThan(WEIGHT_ERROR);
    }
    cache.destroy();
  });

  it('says when it is full, and which heads it takes', async () => {
    const cache = await KvCache.create(device, { batch: 1, heads: 1, kvHeads: 1, headSize: 64, capacity: 1 });
    expect(() => cache.fill(buffer(64), buffer(64), 257)).toThrow(/has room for 256 tokens, not 257/);
    cache.destroy();
    const other = KvCache.create(device, { batch: 1, heads: 1, kvHeads: 1, headSize: 80, capacity: 1 });
    await expect(other).rejects.toThrow(MxattnError);
  });
});
