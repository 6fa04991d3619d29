import {
  type AttentionSpec,
  type AttentionTensors,
  attention,
  attentionSpec,
  backendNames,
  emulateAttention,
  MxattnError,
  type PrecisionName,
  precision,
  recipes,
  referenceAttention,
  registerBackend,
} from '@mxattn/core';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { largestDifference, relativeError } from './golden.js';
import { normal, uniform } from './random.js';

/** Attention written out index by index, without anything of the library. */
function written(tensors: AttentionTensors, spec: AttentionSpec): Float64Array {
  const { batch, heads, kvHeads, queryLength, keyLength, headSize, valueHeadSize } = spec;
  const at = (n: number, length: number, size: number, b: number, h: number, s: number, c: number) =>
    spec.layout === 'BHSD' ? ((b * n + h) * length + s) * size + c : ((b * length + s) * n + h) * size + c;
  const broadcast = (dims: readonly number[], position: number[]) => {
    let index = 0;
    dims.forEach((size, axis) => {
      index = index * size + Math.min(position[4 - dims.length + axis]!, size - 1);
    });
    return index;
  };
  const out = new Float64Array(batch * heads * queryLength * valueHeadSize);
  for (let b = 0; b < batch; b++) {
    for (let h = 0; h < heads; h++) {
      const g = Math.floor(h / (heads / kvHeads));
      for (let i = 0; i < queryLength; i++) {
        const position = i + keyLength - queryLength;
        const scores = Array.from({ length: keyLength }, (_, j) => {
          let s = 0;
          for (let c = 0; c < headSize; c++) {
            s +=
              tensors.query[at(heads, queryLength, headSize, b, h, i, c)]! *
              tensors.key[at(kvHeads, keyLength, headSize, b, g, j, c)]!;
          }
          s *= spec.scale;
          if (spec.softcap) s = spec.softcap * Math.tanh(s / spec.softcap);
          if (tensors.bias) s += tensors.bias.data[broadcast(tensors.bias.dims, [b, h, i, j])]!;
          if (tensors.mask?.data[broadcast(tensors.mask.dims, [b, h, i, j])] === 0) s = -Infinity;
          if (spec.causal && j > position) s = -Infinity;
          if (spec.window && (j < position - spec.window.left || j > position + spec.window.right))
            s = -Infinity;
          return s;
        });
        if (scores.every((s) => s === -Infinity)) continue;
        const sum =
          scores.reduce((total, s) => total + Math.exp(s), 0) +
          (tensors.sinks ? Math.exp(tensors.sinks[h]!) : 0);
        for (let c = 0; c < valueHeadSize; c++) {
          let o = 0;
          scores.forEach((s, j) => {
            o += (Math.exp(s) / sum) * tensors.value[at(kvHeads, keyLength, valueHeadSize, b, g, j, c)]!;
          });
          out[at(heads, queryLength, valueHeadSize, b, h, i, c)] = o;
        }
      }
    }
  }
  return out;
}

const anyDims = (full: number[]) =>
  fc
    .tuple(fc.integer({ min: 1, max: 4 }), fc.array(fc.boolean(), { minLength: 4, maxLength: 4 }))
    .map(([rank, ones]) => full.map((size, axis) => (ones[axis] ? 1 : size)).slice(4 - rank));

const anyCase = fc
  .record({
    batch: fc.integer({ min: 1, max: 2 }),
    kvHeads: fc.integer({ min: 1, max: 2 }),
    group: fc.integer({ min: 1, max: 3 }),
    queryLength: fc.integer({ min: 1, max: 9 }),
    keyLength: fc.constantFrom(1, 5, 31, 32, 33, 65, 129),
    headSize: fc.constantFrom(1, 8, 24, 32, 40),
    valueHeadSize: fc.constantFrom(1, 8, 33),
    layout: fc.constantFrom('BHSD' as const, 'BSHD' as const),
    causal: fc.boolean(),
    window: fc.option(fc.record({ left: fc.nat(40), right: fc.nat(3) })),
    softcap: fc.constantFrom(0, 2),
    seed: fc.nat(),
    useBias: fc.boolean(),
    useMask: fc.boolean(),
    useSinks: fc.boolean(),
  })
  .chain((options) => {
    const full = [options.batch, options.kvHeads * options.group, options.queryLength, options.keyLength];
    return fc.record({
      options: fc.constant(options),
      biasDims: anyDims(full),
      maskDims: anyDims(full),
    });
  })
  .map(({ options, biasDims, maskDims }) => {
    const { group, seed, useBias, useMask, useSinks, ...shape } = options;
    const spec = attentionSpec({ ...shape, heads: shape.kvHeads * group });
    const size = (dims: number[]) => dims.reduce((a, b) => a * b, 1);
    const next = uniform(seed);
    const tensors: AttentionTensors = {
      query: normal(spec.batch * spec.heads * spec.queryLength * spec.headSize, seed, 2),
      key: normal(spec.batch * spec.kvHeads * spec.keyLength * spec.headSize, seed + 1),
      value: normal(spec.batch * spec.kvHeads * spec.keyLength * spec.valueHeadSize, seed + 2),
      ...(useBias
        ? {
            bias: {
              dims: biasDims,
              data: normal(size(biasDims), seed + 3).map((x) => (next() < 0.2 ? -Infinity : x)),
            },
          }
        : {}),
      ...(useMask
        ? {
            mask: {
              dims: maskDims,
              data: Uint8Array.from({ length: size(maskDims) }, () => +(next() < 0.7)),
            },
          }
        : {}),
      ...(useSinks ? { sinks: normal(spec.heads, seed + 4) } : {}),
    };
    return { spec, tensors };
  });

describe('the reference', () => {
  test('equals attention written out, for any shape, layout, mask, bias and sinks', () => {
    fc.assert(
      fc.property(anyCase, ({ spec, tensors }) => {
        const expected = written(tensors, spec);
        const output = referenceAttention(tensors, spec, new Float64Array(expected.length));
        expect(largestDifference(output, expected)).toBeLessThan(1e-12);
      }),
      { numRuns: 200 },
    );
  });

  test('large equal scores give the mean of V: no overflow', () => {
    const spec = attentionSpec({ heads: 1, queryLength: 2, keyLength: 64, headSize: 128 });
    const value = normal(64 * 128, 1);
    const tensors = {
      query: new Float32Array(2 * 128).fill(23),
      key: new Float32Array(64 * 128).fill(23),
      value,
    };
    const mean = (from: Float32Array, c: number) => {
      let sum = 0;
      for (let j = 0; j < 64; j++) sum += from[j * 128 + c]!;
      return sum / 64;
    };
    expect(referenceAttention(tensors, spec)[128 + 5]).toBeCloseTo(mean(value, 5), 6);
  });
});

describe('the emulation', () => {
  test('of f32 equals the reference, for any shape, layout, mask, bias and sinks', () => {
    fc.assert(
      fc.property(anyCase, ({ spec, tensors }) => {
        const expected = referenceAttention(tensors, spec, new Float64Array(written(tensors, spec).length));
        const f64 = emulateAttention(tensors, spec, recipes.f32, {
          output: new Float64Array(expected.length),
        });
        expect(largestDifference(f64, expected)).toBeLessThan(1e-12);
        const f32 = emulateAttention(tensors, spec, recipes.f32, { arithmetic: 'f32' });
        expect(largestDifference(f32, expected)).toBeLessThan(1e-5);
      }),
    );
  });

  const errors: [PrecisionName, number][] = [
    ['mxfp8', 0.06],
    ['mxfp6', 0.07],
    ['mxfp4', 0.22],
  ];
  test.each(errors)('of %s is as close as its formats allow, in f64 and f32', (name, bound) => {
    const spec = attentionSpec({ heads: 4, kvHeads: 2, queryLength: 64, keyLength: 513, headSize: 64 });
    const tensors = {
      query: normal(4 * 64 * 64, 1),
      key: normal(2 * 513 * 64, 2),
      value: normal(2 * 513 * 64, 3),
    };
    const expected = referenceAttention(tensors, spec);
    const f64 = emulateAttention(tensors, spec, recipes[name]);
    const f32 = emulateAttention(tensors, spec, recipes[name], { arithmetic: 'f32' });
    expect(relativeError(f64, expected)).toBeLessThan(bound);
    expect(relativeError(f64, expected)).toBeGreaterThan(bound / 2);
    expect(relativeError(f32, f64)).toBeLessThan(1e-3);
  });

  test('rows do not depend on how many queries there are', () => {
    const tensors = { query: normal(5 * 32, 1), key: normal(100 * 32, 2), value: normal(100 * 32, 3) };
    const shape = { heads: 1, keyLength: 100, headSize: 32 };
    for (const name of Object.keys(recipes) as PrecisionName[]) {
      const all = emulateAttention(tensors, attentionSpec({ ...shape, queryLength: 5 }), recipes[name]);
      const one = emulateAttention(
        { ...tensors, query: tensors.query.subarray(3 * 32, 4 * 32) },
        attentionSpec({ ...shape, queryLength: 1 }),
        recipes[name],
      );
      expect(one).toEqual(all.subarray(3 * 32, 4 * 32));
    }
  });

  test.each(Object.keys(recipes))('of %s: a bias that is the same for every key changes nothing', (name) => {
    const spec = attentionSpec({ heads: 2, queryLength: 7, keyLength: 130, headSize: 32, causal: true });
    const tensors = {
      query: normal(2 * 7 * 32, 1),
      key: normal(2 * 130 * 32, 2),
      value: normal(2 * 130 * 32, 3),
    };
    const bias = { data: Float32Array.of(-65504), dims: [1] };
    const recipe = precision(name);
    const plain = emulateAttention(tensors, spec, recipe);
    expect(largestDifference(emulateAttention({ ...tensors, bias }, spec, recipe), plain)).toBeLessThan(1e-6);
  });

  test.each(Object.keys(recipes))('of %s: NaN stays in its rows, inputs stay as they were', (name) => {
    const spec = attentionSpec({ heads: 1, queryLength: 4, keyLength: 40, headSize: 32 });
    const tensors = { query: normal(4 * 32, 1), key: normal(40 * 32, 2), value: normal(40 * 32, 3) };
    tensors.query[32 + 5] = NaN;
    const before = structuredClone(tensors);
    const output = emulateAttention(tensors, spec, precision(name));
    expect(tensors).toEqual(before);
    output.forEach((x, i) => {
      expect(Number.isNaN(x)).toBe(Math.floor(i / 32) === 1);
    });
  });

  const finite = fc.float({ noNaN: true, noDefaultInfinity: true });
  const extremes = fc.oneof(finite, fc.constantFrom(3.4028234663852886e38, -3.4028234663852886e38, 1e-45, 0));
  test.each(Object.keys(recipes))('of %s is finite for every finite input', (name) => {
    const list = (n: number) =>
      fc.array(extremes, { minLength: n, maxLength: n }).map((x) => Float32Array.from(x));
    fc.assert(
      fc.property(list(3 * 8), list(70 * 8), list(70 * 4), (query, key, value) => {
        const spec = attentionSpec({
          heads: 1,
          queryLength: 3,
          keyLength: 70,
          headSize: 8,
          valueHeadSize: 4,
        });
        const output = emulateAttention({ query, key, value }, spec, precision(name));
        expect(output.every(Number.isFinite)).toBe(true);
      }),
      { numRuns: 50 },
    );
  });

  test.each(Object.keys(recipes))('of %s: fully masked rows give zeros', (name) => {
    const spec = attentionSpec({ heads: 1, queryLength: 3, keyLength: 70, headSize: 32 });
    const tensors = { query: normal(3 * 32, 1), key: normal(70 * 32, 2), value: normal(70 * 32, 3) };
    const data = new Float32Array(3 * 70);
    data.fill(-Infinity, 70, 140);
    const bias = { data, dims: [3, 70] };
    const sinks = Float32Array.of(0.5);
    const output = emulateAttention({ ...tensors, bias, sinks }, spec, precision(name));
    expect(output.subarray(32, 64).every((x) => x === 0)).toBe(true);
    expect(output.subarray(0, 32).some((x) => x !== 0)).toBe(true);
    expect(output.subarray(64).some((x) => x !== 0)).toBe(true);
  });
});

describe('attention()', () => {
  const spec = attentionSpec({ heads: 2, queryLength: 3, keyLength: 5, headSize: 8 });
  const tensors = { query: normal(48, 1), key: normal(80, 2), value: normal(80, 3) };

  test('takes the best backend that supports the call', async () => {
    expect(await attention(tensors, spec)).toEqual(await attention(tensors, spec, { backend: 'wasm' }));
    // What the WebAssembly kernel has not, the emulation has.
    expect(await attention(tensors, spec, { precision: 'mxfp8' })).toEqual(
      emulateAttention(tensors, spec, recipes.mxfp8),
    );
    expect(await attention(tensors, spec, { backend: 'reference' })).toEqual(
      referenceAttention(tensors, spec),
    );
    registerBackend({
      name: 'ones',
      priority: 6,
      supports: ({ causal }) => causal || 'needs a causal mask',
      attention: async ({ query }) => new Float32Array(query.length).fill(1),
    });
    expect(backendNames()).toEqual(['ones', 'wasm', 'reference', 'emulation']);
    expect((await attention(tensors, { ...spec, causal: true }))[0]).toBe(1);
    expect((await attention(tensors, spec))[0]).not.toBe(1);
    await expect(attention(tensors, spec, { backend: 'ones' })).rejects.toThrow(
      'backend "ones" needs a causal mask',
    );
    await expect(attention(tensors, spec, { backend: 'reference', precision: 'mxfp4' })).rejects.toThrow(
      'backend "reference" computes in float64 only, not mxfp4',
    );
  });

  const bad: [string, Partial<AttentionTensors>, RegExp][] = [
    [
      'query',
      { query: new Float32Array(47) },
      /query has 47 elements, expected 48 = 1 x 2 x 3 x 8 \(\[batch, heads/,
    ],
    ['key', { key: new Float32Array(48) }, /key has 48 elements, expected 80/],
    ['value', { value: new Float32Array(0) }, /value has 0 elements/],
    ['bias dims', { bias: { data: new Float32Array(4), dims: [4] } }, /bias has dims \[4\].*\[1, 2, 3, 5\]/],
    ['bias length', { bias: { data: new Float32Array(4), dims: [5] } }, /bias has 4 elements, expected 5/],
    ['mask', { mask: { data: new Uint8Array(5), dims: [1, 1, 1, 1, 5] } }, /mask has dims/],
    ['sinks', { sinks: new Float32Array(3) }, /sinks has 3 elements, expected 2 = 2 \(\[heads\]\)/],
  ];
  test.each(bad)('names a wrong %s', async (_, change, message) => {
    const call = attention({ ...tensors, ...change }, spec);
    await expect(call).rejects.toThrow(MxattnError);
    await expect(call).rejects.toThrow(message);
  });

  test('names what it does not know', async () => {
    const unknown = 'mxfp5' as PrecisionName;
    await expect(attention(tensors, spec, { precision: unknown })).rejects.toThrow(
      /unknown precision "mxfp5"; known: f32, mxfp6, mxfp4, mxfp8/,
    );
    await expect(attention(tensors, spec, { backend: 'abacus' })).rejects.toThrow(/unknown backend "abacus"/);
  });
});
