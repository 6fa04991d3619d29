import { toF16 } from '@mxattn/core';
import { type ConvertOptions, convertModel, readModel, type TargetName } from '@mxattn/ort-op';
import { Tensor } from 'onnxruntime-node';
import { expect } from 'vitest';
import { noise } from './noise.js';
import { type ModelText, onnx } from './onnx-text.js';
import { relativeError, runStock } from './stock.js';

/** The sizes that symbols of the test models stand for. */
const sizes: Record<string, number> = { B: 3, S: 5, T: 7, P: 4, 'T+P': 11 };

/** Deterministic feeds for a model's inputs: normal numbers, and masks that keep two of three. */
export function feedsOf(inputs: Readonly<Record<string, string>>): Record<string, Tensor> {
  return Object.fromEntries(
    Object.entries(inputs).map(([name, type], index) => {
      const dims = (/\[(.*)\]/.exec(type)?.[1] ?? '')
        .split(',')
        .filter(Boolean)
        .map((dim) => sizes[dim] ?? Number(dim));
      const count = dims.reduce((a, b) => a * b, 1);
      const kept = Array.from({ length: count }, (_, at) => Number((at * 7 + index) % 3 !== 0));
      if (type.startsWith('bool')) return [name, new Tensor('bool', kept, dims)];
      if (type.startsWith('i32')) return [name, new Tensor('int32', Int32Array.from(kept), dims)];
      if (type.startsWith('i64')) return [name, new Tensor('int64', BigInt64Array.from(kept, BigInt), dims)];
      const numbers = noise(count, index + 1);
      if (type.startsWith('f16'))
        return [name, new Tensor('float16', Uint16Array.from(numbers, toF16), dims)];
      return [name, new Tensor('float32', numbers, dims)];
    }),
  );
}

interface ReplacementOptions extends ConvertOptions {
  /** How many attentions there are; 1 if not given. */
  readonly count?: number;
  /** Largest relative error; 1e-5 if not given. */
  readonly tolerance?: number;
  /** A model that gives the same answers, where the stock runtime cannot run the model itself. */
  readonly reference?: ModelText;
}

/**
 * Converts a model and expects the outputs of the model itself, or of a reference for what the stock runtime
 * cannot run.
 */
export async function expectReplaced(
  text: ModelText,
  { count = 1, reference = text, tolerance = 1e-5, ...options }: ReplacementOptions = {},
): Promise<ReturnType<typeof convertModel>> {
  const bytes = onnx(text);
  const result = convertModel(bytes, { crossAttention: true, ...options });
  expect(result.report.left).toEqual([]);
  expect(result.report.replaced).toHaveLength(count);
  const initializers = new Set(Object.keys(text.initializers ?? {}));
  const fed = Object.entries(text.inputs).filter(([name]) => !initializers.has(name));
  const feeds = feedsOf(Object.fromEntries(fed));
  const [expected, actual] = [
    await runStock(readModel(onnx(reference)), feeds),
    await runStock(result.model, feeds),
  ];
  for (const name of Object.keys(text.outputs)) {
    expect((actual[name] as Tensor).dims).toEqual((expected[name] as Tensor).dims);
    expect(relativeError(actual[name] as Tensor, expected[name] as Tensor)).toBeLessThan(tolerance);
  }
  return result;
}

/** Why the attentions of a model are left. */
export function reasonsOf(text: ModelText, target: TargetName = 'fused'): string[] {
  return convertModel(onnx(text), { target, crossAttention: true }).report.left.map((each) => each.reason);
}
