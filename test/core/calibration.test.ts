import {
  attentionSpec,
  calibrate,
  conventional,
  type EfqCalibration,
  efqPipeline,
  emulateAttention,
  type Recipe,
  recipes,
  referenceAttention,
  type SoftmaxPipeline,
  scoreSamples,
} from '@mxattn/core';
import { describe, expect, test } from 'vitest';
import { relativeError } from './golden.js';
import { normal } from './random.js';

const spec = attentionSpec({
  heads: 2,
  kvHeads: 1,
  queryLength: 24,
  keyLength: 200,
  headSize: 32,
  causal: true,
});
const tensors = {
  query: normal(2 * 24 * 32, 1, 2),
  key: normal(200 * 32, 2),
  value: normal(200 * 32, 3),
};

function measured(softmax: SoftmaxPipeline): number {
  const recipe: Recipe = { ...recipes.f32, softmax };
  const size = 2 * 24 * 32;
  const output = emulateAttention(tensors, spec, recipe, { output: new Float64Array(size) });
  return relativeError(output, referenceAttention(tensors, spec, new Float64Array(size)));
}

describe('EFQ calibration', () => {
  const samples = scoreSamples(tensors, spec);
  const affine = calibrate(samples);
  const withTable = calibrate(samples, { table: true });

  test('reports the errors that its pipelines and its baseline really have', () => {
    expect(samples).toHaveLength(2);
    expect(affine.error).toBeCloseTo(measured(efqPipeline(affine)), 12);
    expect(withTable.error).toBeCloseTo(measured(efqPipeline(withTable)), 12);
    expect(affine.baseline).toBeCloseTo(measured(conventional({ format: 'e2m1', scale: 'floor' })), 12);
  });

  test('finds better parameters than its neighbours, and a table better than none', () => {
    for (const [tau, step] of [
      [0.2, 0],
      [-0.2, 0],
      [0, 0.1],
      [0, -0.1],
    ] as const) {
      const moved = { ...affine, tau: affine.tau + tau, step: affine.step + step };
      expect(measured(efqPipeline(moved))).toBeGreaterThan(affine.error);
    }
    expect(withTable.table).toHaveLength(16);
    expect(withTable.error).toBeLessThan(affine.error);
  });

  test('is deterministic and survives JSON', () => {
    expect(calibrate(samples, { table: true })).toEqual(withTable);
    const loaded = JSON.parse(JSON.stringify(withTable)) as EfqCalibration;
    expect(loaded).toEqual(withTable);
    expect(efqPipeline(loaded)).toEqual(efqPipeline(withTable));
  });

  test('reports progress up to the end', () => {
    const seen: number[] = [];
    calibrate(samples, { onProgress: (done) => seen.push(done) });
    expect(seen).toEqual(seen.toSorted((a, b) => a - b));
    expect(seen.at(-1)).toBe(1);
  });

  test.each([
    [{ ...affine, method: 'lut' }, /method is "lut"/],
    [{ ...affine, tau: null }, /tau is null/],
    [{ ...affine, step: 0 }, /step is 0/],
    [{ ...affine, table: [0, 8] }, /table\[1\] is 8/],
    [{ ...affine, table: [] }, /table\[0\]/],
  ])('names the bad part of a file (%#)', (file, message) => {
    expect(() => efqPipeline(file as unknown as EfqCalibration)).toThrow(message);
  });

  test('refuses samples without a visible key', () => {
    expect(() => calibrate([])).toThrow(/no sample/);
  });
});
