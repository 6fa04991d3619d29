/// <reference types="@webgpu/types" />
import { useSoftwareVulkan } from '@mxattn/browser';
import { attentionSpec, conventional, emulateAttention, MxattnError, recipes, toF16 } from '@mxattn/core';
import { KvCache, type Step } from '@mxattn/ort-op/webgpu';
import { describeGpu, openGpu } from '@mxattn/ort-op/webgpu-node';
import { describe, expect, it } from 'vitest';
import { normal, relativeError } from '../conformance/random.js';
import { cachedKeys, cachedValues, tokensBetween } from './cached-operands.js';
import { readBuffer, submit } from './device.js';
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

  const run = (steps: readonly Step[]) => submit(device, steps);
  const read = async (source: GPUBuffer) => new Float32Array(await readBuffer(device, source));

  function biasOf(bias: Float32Array, heads: number, total: number, length: number) {
    return { data: tokensBetween(bias, heads, total, 0, length, 1), dims: [1, heads, 1, length] as const };
  }

  it.each([
    { heads: 8, kvHeads: 2, headSize: 64, filled: 70, steps: 28 },
    { heads: 4, kvHeads: 4, headSize: 64, filled: 0, steps: 3 },
    { heads: 12, kvHeads: 2, headSize: 128, filled: 250, steps: 8 },
    { heads: 4, kvHeads: 1, headSize: 64, filled: 40, steps: 2, windowLeft: 9 },
    { heads: 6, kvHeads: 2, headSize: 64, filled: 40, steps: 2, biased: true },
    { heads: 6, kvHeads: 1, headSize: 64, filled: 62, steps: 4, elementType: 'float16' as const },
  ])('$heads/$kvHeads heads of $headSize after $filled tokens', async (shape) => {
    const { heads, kvHeads, headSize, filled, steps, windowLeft, biased, elementType = 'float32' } = shape;
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
      elementType,
      ...(windowLeft === undefined ? {} : { windowLeft }),
      ...(biased ? { bias: true, sinks: true } : {}),
    });
    // A hidden key, one that all but is, and numbers; for each query head its own.
    const bias = normal(heads * total, 3);
    const sinks = normal(heads, 4) as Float32Array<ArrayBuffer>;
    for (let h = 0; h < heads; h++) {
      bias[h * total] = -Infinity;
      bias[h * total + 1] = -3.4028234663852886e38;
    }
    const keys = numbers(kvHeads * total * headSize, 1);
    const values = numbers(kvHeads * total * headSize, 2);
    const part = (data: Float32Array, count: number) =>
      tokensBetween(data, kvHeads, total, 0, count, headSize);
    if (filled > 0)
      run(cache.append(buffer(stored(part(keys, filled))), buffer(stored(part(values, filled))), filled));
    const buffers = {
      query: buffer(heads * headSize),
      key: buffer(kvHeads * headSize),
      value: buffer(kvHeads * headSize),
      output: buffer(heads * headSize),
      ...(biased ? { bias: buffer(bias as Float32Array<ArrayBuffer>), sinks: buffer(sinks) } : {}),
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
      run(cache.step(buffers, [0, total, 1]));
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
        {
          query,
          key: part(keys, length),
          value: cachedValues(part(values, length), kvHeads, length, headSize),
          ...(biased ? { bias: biasOf(bias, heads, total, length), sinks } : {}),
        },
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

  it.each([
    [64, 2],
    [128, 1],
  ])('heads of %i: appends many and few, gives them back, forks, grows', async (headSize, kvHeads) => {
    const shape = { batch: 2, heads: 4, kvHeads, headSize };
    const heads = 2 * kvHeads;
    const total = 1030;
    const keys = normal(heads * total * headSize, 1);
    const values = normal(heads * total * headSize, 2);
    const between = (data: Float32Array, begin: number, end: number) =>
      tokensBetween(data, heads, total, begin, end, headSize);
    const cache = await KvCache.create(device, shape);
    let filled = 0;
    const append = (count: number) => {
      const end = filled + count;
      run(cache.append(buffer(between(keys, filled, end)), buffer(between(values, filled, end)), count));
      filled = end;
    };
    const unpacked = async (from: KvCache) => {
      const rows = from.unpackedTokens;
      const [key, value] = [buffer(heads * rows * headSize), buffer(heads * rows * headSize)];
      run([from.unpack(key, value)]);
      const tokensOf = async (each: GPUBuffer) =>
        tokensBetween(await read(each), heads, rows, 0, from.length, headSize);
      return { key: await tokensOf(key), value: await tokensOf(value) };
    };
    /** @param longest that its last panel has been. */
    const expectTokens = async (from: KvCache, length: number, longest = length) => {
      expect(from.length).toBe(length);
      const { key, value } = await unpacked(from);
      expect(relativeError(key, cachedKeys(between(keys, 0, length), heads, length, headSize))).toBeLessThan(
        1e-5,
      );
      const expected = cachedValues(between(values, 0, longest), heads, longest, headSize);
      expect(relativeError(value, tokensBetween(expected, heads, longest, 0, length, headSize))).toBeLessThan(
        1e-7,
      );
    };
    for (const count of [7, 1, 20, 4, 33, 70, 9]) {
      append(count);
      await expectTokens(cache, filled);
    }
    const forked = [cache.fork(140), cache.fork(50), cache.fork(64)] as const;
    append(total - filled);
    await expectTokens(cache, filled);
    await expectTokens(forked[0], 140);
    // The panel was full already.
    await expectTokens(forked[1], 50, 64);
    await expectTokens(forked[2], 64);
    for (const each of [cache, ...forked]) each.destroy();
  });

  it('gives float16 that is packed the same again', async () => {
    const [heads, headSize, length] = [2, 64, 75];
    const numbers = (seed: number) => rounded(normal(heads * length * headSize, seed));
    const [keys, values] = [numbers(1), numbers(2)];
    const shape = { batch: 1, heads, kvHeads: heads, headSize, elementType: 'float16' as const };
    const [first, second] = [await KvCache.create(device, shape), await KvCache.create(device, shape)];
    const halves = (data: Float32Array) => buffer(Uint16Array.from(data, toF16));
    run(first.append(halves(keys), halves(values), length));
    const rows = first.unpackedTokens;
    const elements = heads * rows * headSize;
    const [key, value] = [buffer(elements / 2), buffer(elements / 2)];
    run([first.unpack(key, value)]);
    const given = async (each: GPUBuffer) =>
      tokensBetween(await readHalves(device, each, elements), heads, rows, 0, length, headSize);
    const [givenKeys, givenValues] = [await given(key), await given(value)];
    const expected = cachedKeys(keys.slice(), heads, length, headSize);
    expect(relativeError(givenKeys, expected)).toBeLessThan(2e-3);
    expect(relativeError(givenValues, cachedValues(values, heads, length, headSize))).toBeLessThan(1e-7);
    run(second.append(halves(givenKeys), halves(givenValues), length));
    const again = buffer(elements);
    run([second.unpack(again, buffer(elements), 'float32')]);
    const keysAgain = tokensBetween(await read(again), heads, rows, 0, length, headSize);
    expect(relativeError(keysAgain, expected)).toBeLessThan(1e-5);
    for (const each of [first, second]) each.destroy();
  });

  it('says which heads it takes, and when the device has no room', async () => {
    const other = KvCache.create(device, { batch: 1, heads: 1, kvHeads: 1, headSize: 80 });
    await expect(other).rejects.toThrow(MxattnError);
    const cache = await KvCache.create(device, { batch: 1, heads: 1, kvHeads: 1, headSize: 64 });
    expect(() => cache.append(buffer(64), buffer(64), 2 ** 28)).toThrow(/the device has at most \d+/);
    cache.destroy();
  });
});
