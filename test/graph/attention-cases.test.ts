import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import { convertModel, createSession, writeModel } from '@mxattn/ort-op';
import { Tensor } from 'onnxruntime-node';
import { describe, expect, it } from 'vitest';
import { numbersOf, runStock } from './stock.js';

interface StoredTensor {
  readonly name: string;
  readonly type: string;
  readonly dims: number[];
  readonly data: string;
}

interface AttentionCase {
  readonly name: string;
  readonly model: string;
  readonly inputs: readonly StoredTensor[];
  readonly outputs: readonly StoredTensor[];
}

const file = new URL('../models/attention-cases.json.gz', import.meta.url);
const cases = JSON.parse(gunzipSync(readFileSync(file)).toString()) as AttentionCase[];

/** What FusedAttention does not do yet; the number of cases each leaves out. */
const exclusions: Readonly<Record<string, number>> = {
  'its scores or probabilities are an output': 18,
  'its element type is bfloat16, neither float32 nor float16': 5,
};

function tensorOf({ type, dims, data }: StoredTensor): Tensor {
  const bytes = Uint8Array.from(Buffer.from(data, 'base64'));
  if (type === 'float32') return new Tensor('float32', new Float32Array(bytes.buffer), dims);
  if (type === 'float16') return new Tensor('float16', new Uint16Array(bytes.buffer), dims);
  if (type === 'bool') return new Tensor('bool', bytes, dims);
  if (type === 'int64') return new Tensor('int64', new BigInt64Array(bytes.buffer), dims);
  throw new Error(`no test reads ${type}`);
}

/** The greatest distance of two tensors' elements, relative where they are above 1. Infinite for NaN. */
function distance(actual: Tensor, expected: Tensor): number {
  expect(actual.type).toBe(expected.type);
  expect(actual.dims).toEqual(expected.dims);
  const numbers = numbersOf(actual);
  return numbersOf(expected).reduce((worst, value, at) => {
    const error = Math.abs(numbers[at]! - value) / Math.max(1, Math.abs(value));
    return Number.isNaN(error) ? Infinity : Math.max(worst, error);
  }, 0);
}

/** Half a unit in the last place of numbers near 1, twice: the expected answer is rounded, too. */
const tolerances: Readonly<Record<string, number>> = { float32: 1e-4, float16: 1e-3 };

describe("the ONNX project's own cases for Attention", () => {
  const reasons: Record<string, number> = {};
  for (const each of cases) {
    const { model, report } = convertModel(Buffer.from(each.model, 'base64'), { crossAttention: true });
    const reason = report.left[0]?.reason;
    if (reason) {
      reasons[reason] = (reasons[reason] ?? 0) + 1;
      continue;
    }
    it(each.name, async () => {
      expect(report.replaced).toHaveLength(1);
      const feeds = Object.fromEntries(each.inputs.map((input) => [input.name, tensorOf(input)]));
      const before = Object.values(feeds).map(({ data }) => (data as Float32Array).slice());
      const native = await createSession(writeModel(model), { backend: 'native', threads: 2 });
      expect(native.report.replaced).toHaveLength(1);
      for (const outputs of [await runStock(model, feeds), await native.run(feeds)]) {
        for (const expected of each.outputs) {
          const actual = outputs[expected.name] as Tensor;
          // A cache that the session keeps itself gives its data on request.
          await actual.getData();
          expect(distance(actual, tensorOf(expected))).toBeLessThan(tolerances[actual.type]!);
        }
      }
      // Nothing is written into what a caller feeds.
      expect(Object.values(feeds).map(({ data }) => data)).toEqual(before);
      await native.release();
    });
  }

  it('are left out for known reasons alone', () => {
    expect(reasons).toEqual(exclusions);
  });
});
