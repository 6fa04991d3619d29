import {
  conventional,
  directE4m3,
  elementFormats,
  fused,
  ROLLBACK_THRESHOLD,
  rowSoftmax,
  SCHRAUDOLPH_CORRECTION,
  type SoftmaxPipeline,
} from '@mxattn/core';
import { describe, expect, test } from 'vitest';
import { golden, relativeError } from './golden.js';
import { normal } from './random.js';

interface GoldenSchraudolph {
  c: number;
  t: number[];
  bf16_value: number[];
  fp32_value: number[];
  e4m3_value: number[];
  e2m3_block_code: number[];
}

/** The weights that a pipeline gives to scores in log2 units, normalised: its output on V = identity. */
function weightsOf(
  pipeline: SoftmaxPipeline,
  scores: ArrayLike<number>,
  sink = -Infinity,
  arithmetic: 'f64' | 'f32' = 'f64',
): { weights: Float64Array; rollbacks: number; saturations: number; drift: number } {
  const n = scores.length;
  const identity = new Float64Array(n * n);
  for (let j = 0; j < n; j++) identity[j * n + j] = 1;
  const weights = new Float64Array(n);
  const trace = rowSoftmax(pipeline, 64, n, arithmetic).run(
    Float64Array.from(scores),
    0,
    n,
    identity,
    sink,
    weights,
  );
  return { weights, ...trace };
}

const E2M3 = { format: 'e2m3', scale: 'floor' } as const;
const E4M3 = { format: 'e4m3', scale: { exponent: 0 } } as const;
const pipelines: [string, SoftmaxPipeline][] = [
  ['conventional', conventional(E2M3)],
  ['fused, E2M3 blocks', fused(E2M3)],
  ['fused, fixed E4M3', fused(E4M3)],
  ['direct E4M3', directE4m3(0)],
  ['direct E4M3, shift 4', directE4m3(4)],
];

describe('Schraudolph', () => {
  const { c, t, bf16_value, fp32_value, e4m3_value, e2m3_block_code } =
    golden<GoldenSchraudolph>('schraudolph');
  const schraudolph = (stage: 'bf16' | 'f32'): SoftmaxPipeline => ({
    ...fused(E4M3, null),
    weights: {
      kind: 'exponential',
      exponential: { kind: 'schraudolph', correction: SCHRAUDOLPH_CORRECTION, stage },
      operand: null,
    },
  });
  const directE2m3: SoftmaxPipeline = {
    ...fused(E4M3, null),
    weights: { kind: 'direct', format: 'e2m3', shift: 0, correction: SCHRAUDOLPH_CORRECTION },
  };

  test('the correction', () => expect(SCHRAUDOLPH_CORRECTION).toBe(c));

  // Two keys, the first at the reference: the ratio of their weights is P(t) / P(0).
  test.each<[string, SoftmaxPipeline, number[]]>([
    ['bfloat16', schraudolph('bf16'), bf16_value],
    ['float32', schraudolph('f32'), fp32_value],
    ['direct E4M3', directE4m3(0), e4m3_value],
    ['direct E2M3', directE2m3, e2m3_block_code.map((code) => elementFormats.e2m3.values[code]!)],
  ])('to %s', (_, pipeline, values) => {
    const atReference = values[t.indexOf(0)]!;
    t.forEach((x, i) => {
      if (x > 0) return;
      // The file's affine values are float32 numbers.
      const { weights } = weightsOf(pipeline, [0, x], -Infinity, 'f32');
      expect(weights[1]! / weights[0]!, `t = ${x}`).toBeCloseTo(values[i]! / atReference, 12);
    });
  });
});

describe('direct codes of narrow formats', () => {
  const rule = { kind: 'direct', format: 'e2m3', shift: 0, correction: SCHRAUDOLPH_CORRECTION } as const;
  const scores = normal(512, 3, 3);
  const exact = weightsOf(conventional(null), scores).weights;
  const errorOf = (weights: SoftmaxPipeline['weights']) =>
    relativeError(weightsOf({ ...conventional(null), weights }, scores).weights, exact);

  test('need an exponent per block, and a second piece below it', () => {
    const plain = errorOf(rule);
    const blocks = errorOf({ ...rule, blocks: true });
    const pieces = errorOf({ ...rule, blocks: true, pieces: 2 });
    expect(blocks).toBeLessThan(plain / 2);
    expect(pieces).toBeLessThan(blocks);
  });
});

describe.each(pipelines)('%s', (_, pipeline) => {
  test('one key has all the weight', () => {
    for (const score of [-1e30, -5, 0, 3.3, 1e30]) {
      expect(weightsOf(pipeline, [score]).weights[0]).toBe(1);
    }
  });

  test.each([2, 31, 32, 33, 64, 127, 200])('%d equal scores have equal weights', (n) => {
    for (const weight of weightsOf(pipeline, new Float64Array(n).fill(7)).weights) {
      expect(weight).toBeCloseTo(1 / n, 12);
    }
  });

  test('masked keys have no weight, a fully masked row is all zeros', () => {
    const scores = normal(150, 1);
    scores.fill(-Infinity, 0, 70);
    scores.fill(-Infinity, 90, 100);
    const { weights } = weightsOf(pipeline, scores);
    scores.forEach((score, j) => {
      expect(weights[j]! > 0).toBe(score > -Infinity);
    });
    expect(weightsOf(pipeline, new Float64Array(70).fill(-Infinity), 1)).toEqual({
      weights: new Float64Array(70),
      rollbacks: 0,
      saturations: 0,
      drift: 0,
    });
  });

  // (8 is left out: in its block of E2M3 it leaves no room for the 31 keys beside it.)
  test.each([1, 2, 4, 12, 40])('a late key %d log2 units above 127 others gets its weight', (height) => {
    const scores = new Float64Array(128);
    scores[127] = height;
    const expected = 2 ** height / (127 + 2 ** height);
    const { weights } = weightsOf(pipeline, scores);
    // Half a step of a three-bit significand on either side of the quotient.
    expect(weights[127]! / expected).toBeGreaterThan(1 - 1 / 15);
    expect(weights[127]! / expected).toBeLessThan(1 + 1 / 15);
  });

  test('a sink takes its share of the sum and nothing else', () => {
    const scores = [0, 0, 0];
    const { weights } = weightsOf(pipeline, scores, 0);
    for (const weight of weights) expect(weight).toBeCloseTo(1 / 4, 1);
    expect(weightsOf(pipeline, scores, 1e5).weights[0]).toBe(0);
  });
});

describe('the rollback of the frozen reference', () => {
  const late = (height: number) => {
    const scores = new Float64Array(128);
    scores[100] = height;
    return scores;
  };

  test('happens above the threshold only, and is traced', () => {
    expect(ROLLBACK_THRESHOLD).toBeCloseTo(8.80798, 5);
    expect(weightsOf(fused(E4M3), late(8.8))).toMatchObject({ rollbacks: 0, drift: 8.8 });
    expect(weightsOf(fused(E4M3), late(8.81))).toMatchObject({ rollbacks: 1, drift: 0, saturations: 0 });
    expect(weightsOf(conventional(E4M3), late(0.1))).toMatchObject({ rollbacks: 1, drift: 0 });
  });

  test('without it, late scores saturate and the trace says so', () => {
    const { weights, rollbacks, saturations } = weightsOf(fused(E4M3, null), late(12));
    expect({ rollbacks, saturations }).toEqual({ rollbacks: 0, saturations: 1 });
    expect(weights[100]).toBeCloseTo(elementFormats.e4m3.max / (elementFormats.e4m3.max + 127), 3);
  });

  test('block scales saturate only where bfloat16 ends', () => {
    expect(weightsOf(fused(E2M3, null), late(120)).weights[100]).toBeCloseTo(1, 12);
    const { weights, saturations } = weightsOf(fused(E2M3, null), late(200));
    expect(weights[100]).toBeCloseTo(1, 12);
    // Besides the weights that the floor rule clips in their blocks at any height.
    expect(saturations).toBe(weightsOf(fused(E2M3, null), late(120)).saturations + 1);
  });

  test('NaN raises the reference too, and makes its row NaN', () => {
    const { weights, rollbacks } = weightsOf(fused(E4M3), late(NaN));
    expect(rollbacks).toBe(1);
    expect(weights.every(Number.isNaN)).toBe(true);
  });

  test('a first tile without a key leaves the reference to the next one', () => {
    const scores = new Float64Array(192).fill(50);
    scores.fill(-Infinity, 0, 64);
    expect(weightsOf(fused(E4M3), scores)).toMatchObject({ rollbacks: 0, drift: 0 });
  });
});
