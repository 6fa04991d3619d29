import {
  type AttentionSpec,
  attentionSpec,
  attentionTrace,
  type BlockScheme,
  conventional,
  directE4m3,
  type ElementName,
  efq,
  emulateAttention,
  fromBf16,
  fused,
  hadamardRows,
  quantizeBlocks,
  type Recipe,
  referenceAttention,
  rowView,
  type ScaleRule,
  type SoftmaxPipeline,
  type TensorScheme,
  tensorView,
  toBf16,
  type WeightOperand,
} from '@mxattn/core';
import { describe, expect, test } from 'vitest';
import { golden, largestDifference } from './golden.js';

interface GoldenRecipe {
  qk_format: ElementName;
  qk_rule: ScaleRule;
  v: string;
  p: string;
  conventional: number[];
  fused_bf16: number[];
  direct_e4m3: number[];
  rolls_per_row: number;
}

interface GoldenEfq {
  tau?: number;
  h?: number;
  T?: number[];
  out: number[];
}

interface GoldenAttention {
  Sq: number;
  N: number;
  d: number;
  tile: number;
  q_bf16bits: number[];
  k_bf16bits: number[];
  v_bf16bits: number[];
  reference: number[];
  recipes: Record<string, GoldenRecipe>;
  codes: Record<string, Record<'q' | 'k' | 'v', { e8m0: number[]; codes: number[] }>>;
  efq: Record<string, GoldenEfq>;
}

/** The files' outputs are printed to ten significant digits; ours are float32. */
const TOLERANCE = 1e-9;

function valueScheme(text: string): BlockScheme | TensorScheme {
  if (text === 'fp8_tensor') return { format: 'e4m3', rule: 'tensor' };
  const [format, rule] = text.split(':') as [ElementName, ScaleRule];
  return { format, rule };
}

function weightOperand(text: string): WeightOperand {
  const [kind, format, scale] = text.split(':') as [string, ElementName, string];
  return { format, scale: kind === 'fix' ? { exponent: Number(scale) } : (scale as ScaleRule) };
}

describe.each(['attn_normal', 'attn_latesink'])('%s', (name) => {
  const file = golden<GoldenAttention>(name);
  const bf16 = (bits: number[]) => Float32Array.from(bits, fromBf16);
  const tensors = { query: bf16(file.q_bf16bits), key: bf16(file.k_bf16bits), value: bf16(file.v_bf16bits) };
  const spec: AttentionSpec = attentionSpec({
    heads: 1,
    queryLength: file.Sq,
    keyLength: file.N,
    headSize: file.d,
  });

  function run(recipe: Omit<Recipe, 'name' | 'id' | 'tile'>, tile = file.tile) {
    const trace = attentionTrace(spec);
    const output = new Float64Array(spec.queryLength * spec.valueHeadSize);
    emulateAttention(tensors, spec, { name, id: -1, tile, ...recipe }, { trace, output });
    return { output, trace };
  }

  test('reference', () => {
    const output = referenceAttention(tensors, spec, new Float64Array(file.reference.length));
    expect(largestDifference(output, file.reference)).toBeLessThan(TOLERANCE);
  });

  test.each(Object.entries(file.recipes))('%s', (_, expected) => {
    const operands = {
      queryKey: { format: expected.qk_format, rule: expected.qk_rule },
      value: valueScheme(expected.v),
      hadamard: true,
      stage: 'bf16',
    } as const;
    const operand = weightOperand(expected.p);
    const frozen = run({ ...operands, softmax: fused(operand) });
    const rollbacks = frozen.trace.rollbacks.reduce((a, b) => a + b, 0);
    expect(largestDifference(frozen.output, expected.fused_bf16)).toBeLessThan(TOLERANCE);
    expect(rollbacks / spec.queryLength).toBeCloseTo(expected.rolls_per_row, 9);

    const online = run({ ...operands, softmax: conventional(operand) });
    expect(largestDifference(online.output, expected.conventional)).toBeLessThan(TOLERANCE);

    const direct = run({ ...operands, softmax: directE4m3(0) });
    expect(largestDifference(direct.output, expected.direct_e4m3)).toBeLessThan(TOLERANCE);
  });

  test.each(Object.entries(file.efq))('%s', (_, { tau, h, T, out }) => {
    const pipeline: SoftmaxPipeline =
      tau === undefined || h === undefined
        ? conventional({ format: 'e2m1', scale: 'floor' })
        : efq(tau, h, T);
    // These files take the maximum of the whole row first, and leave Q, K and V as they are.
    const softmax: SoftmaxPipeline = { ...pipeline, reference: { kind: 'row' } };
    const { output } = run({ queryKey: null, value: null, hadamard: false, softmax });
    expect(largestDifference(output, out)).toBeLessThan(TOLERANCE);
  });

  test.each(Object.entries(file.codes))('operand codes of %s', (recipe, { q, k, v }) => {
    const { qk_format: format, qk_rule: rule } = file.recipes[recipe]!;
    const rotate = (values: Float32Array, factor: number) => {
      const rows = Float64Array.from(values, (x) => x * factor);
      hadamardRows(rows, file.d);
      return rows.map((x) => fromBf16(toBf16(x)));
    };
    const query = rotate(tensors.query, spec.scale * Math.LOG2E);
    const key = rotate(tensors.key, 1);
    const sequence = { batch: 1, heads: 1, sequence: file.N, channels: file.d };
    for (const [values, view, scheme, expected] of [
      [query, rowView(file.Sq, file.d), { format, rule }, q],
      [key, rowView(file.N, file.d), { format, rule }, k],
      [tensors.value, tensorView(sequence, 'BHSD', 'sequence'), valueScheme(file.recipes[recipe]!.v), v],
    ] as const) {
      const { codes, scales } = quantizeBlocks(values, view, scheme as BlockScheme);
      expect([...scales]).toEqual(expected.e8m0);
      expect([...codes]).toEqual(expected.codes);
    }
  });
});
