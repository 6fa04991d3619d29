import { attention, attentionSpec, backendNames, emulateAttention, precision, recipes } from '@mxattn/core';
import { describe, expect, it } from 'vitest';
import { normal, relativeError } from '../conformance/random.js';

const spec = attentionSpec({ heads: 2, queryLength: 5, keyLength: 70, headSize: 32 });
const tensors = { query: normal(2 * 5 * 32, 1), key: normal(2 * 70 * 32, 2), value: normal(2 * 70 * 32, 3) };

describe('the WebAssembly backend', () => {
  it('comes before the reference and the emulation', () => {
    const names = backendNames().filter((name) => ['wasm', 'reference', 'emulation'].includes(name));
    expect(names).toEqual(['wasm', 'reference', 'emulation']);
  });

  it('refuses recipes that it does not implement', async () => {
    const run = attention(tensors, spec, { precision: 'mxfp8', backend: 'wasm' });
    await expect(run).rejects.toThrow('backend "wasm" does not implement the recipe mxfp8');
    const ofOnesOwn = { ...recipes.mxfp6, aligned: true };
    await expect(attention(tensors, spec, { precision: ofOnesOwn, backend: 'wasm' })).rejects.toThrow(
      'mxfp6',
    );
  });

  it.each(['f32', 'mxfp6'] as const)(
    'weighs a bias that all keys share against a sink at %s',
    async (name) => {
      const biased = {
        ...tensors,
        bias: { data: Float32Array.of(-3), dims: [1] },
        sinks: Float32Array.of(1, -1),
      };
      const output = await attention(biased, spec, { precision: name, backend: 'wasm' });
      const expected = emulateAttention(biased, spec, precision(name), { arithmetic: 'f32' });
      expect(relativeError(output, expected)).toBeLessThan(1e-5);
      const unbiased = await attention({ ...tensors, sinks: biased.sinks }, spec, {
        precision: name,
        backend: 'wasm',
      });
      expect(relativeError(output, unbiased)).toBeGreaterThan(0.1);
    },
  );

  it('computes calls that overlap', async () => {
    const alone = await attention(tensors, spec, { precision: 'mxfp4', backend: 'wasm' });
    const others = (['f32', 'mxfp6'] as const).map((name) =>
      attention(tensors, spec, { precision: name, backend: 'wasm' }),
    );
    const together = await attention(tensors, spec, { precision: 'mxfp4', backend: 'wasm' });
    await Promise.all(others);
    expect(together).toEqual(alone);
  });

  it('gives nothing for nothing and zeros for no keys', async () => {
    const empty = new Float32Array(0);
    const noKeys = { ...tensors, key: empty, value: empty };
    const zeros = await attention(noKeys, { ...spec, keyLength: 0 }, { precision: 'mxfp6', backend: 'wasm' });
    expect(zeros).toEqual(new Float32Array(2 * 5 * 32));
    const noQueries = { ...tensors, query: empty };
    const nothing = await attention(
      noQueries,
      { ...spec, queryLength: 0 },
      { precision: 'f32', backend: 'wasm' },
    );
    expect(nothing).toHaveLength(0);
  });
});
