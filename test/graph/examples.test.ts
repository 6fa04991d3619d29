import { findAttention, readModel } from '@mxattn/ort-op';
import { type InferenceSession, Tensor } from 'onnxruntime-node';
import { describe, expect, it } from 'vitest';
import { noise } from './noise.js';
import { convertFile, exampleModel, operatorCounts, relativeError, runStock, stockSession } from './stock.js';

function int64(values: number[], dims: number[]): Tensor {
  return new Tensor('int64', BigInt64Array.from(values, BigInt), dims);
}

describe('story-llama', () => {
  const path = exampleModel('story-llama');

  it('has 8 self-attentions with grouped heads and a cache', () => {
    const { found, left } = findAttention(readModel(path));
    expect(left).toEqual([]);
    expect(found.map((each) => each.layer)).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
    for (const each of found) {
      expect(each).toMatchObject({
        heads: 4,
        kvHeads: 2,
        headSize: 64,
        valueHeadSize: 64,
        scale: 0.125,
        softcap: 0,
        selfAttention: true,
        hasCache: true,
        maskKind: 'additive',
      });
    }
  });

  it('is replaced by 8 FusedAttention nodes that read keys before they are repeated', () => {
    const { model, report } = convertFile(path);
    expect(report.replaced).toHaveLength(8);
    expect(report.left).toEqual([]);
    const counts = operatorCounts(model);
    expect(counts).toMatchObject({ FusedAttention: 8 });
    for (const gone of ['Softmax', 'Expand', 'Equal', 'ConstantOfShape'])
      expect(counts[gone]).toBeUndefined();
    const fused = model.graph?.node.filter((node) => node.opType === 'FusedAttention') ?? [];
    fused.forEach((node, layer) => {
      expect(node.input.slice(1, 3)).toEqual([`present.${layer}.key`, `present.${layer}.value`]);
      expect(node.input[4]).toBe('mxattn.precision');
      expect(node.attribute.map((each) => each.name)).toEqual(['scale', 'layer']);
      expect(Number(node.attribute[1]?.i)).toBe(layer);
    });
    expect(model.functions.map((each) => `${each.domain}.${each.name}`)).toEqual([
      'ai.mxattn.FusedAttention',
    ]);
  });

  it('answers as before in a stock runtime, with and without a cache', async () => {
    const original = await stockSession(path);
    const converted = await stockSession(convertFile(path).model);
    expect(converted.inputNames).toEqual(original.inputNames);
    const step = async (ids: number[], cache: InferenceSession.OnnxValueMapType | undefined, padded = 0) => {
      const past = cache ? (cache['present.0.key'] as Tensor).dims[2]! : 0;
      const total = past + ids.length;
      const feeds: Record<string, Tensor> = {
        input_ids: int64(ids, [1, ids.length]),
        attention_mask: int64(
          Array.from({ length: total }, (_, at) => (at < padded ? 0 : 1)),
          [1, total],
        ),
        position_ids: int64(
          ids.map((_, at) => past + at),
          [1, ids.length],
        ),
      };
      for (let layer = 0; layer < 8; layer++) {
        for (const part of ['key', 'value']) {
          feeds[`past_key_values.${layer}.${part}`] =
            (cache?.[`present.${layer}.${part}`] as Tensor) ?? new Tensor('float32', [], [1, 2, 0, 64]);
        }
      }
      const [expected, actual] = [await original.run(feeds), await converted.run(feeds)];
      for (const name of original.outputNames) {
        expect(relativeError(actual[name] as Tensor, expected[name] as Tensor)).toBeLessThan(1e-4);
      }
      return actual;
    };
    const first = await step([1, 17, 300, 45, 9, 2048, 77, 5], undefined);
    const second = await step([12], first);
    await step([400, 3], second);
    // Padding in front: the first rows have every key masked.
    await step([1, 17, 300, 45], undefined, 2);
  });
});

describe('emoji-dit', () => {
  const path = exampleModel('emoji-dit');

  it('has 8 self- and 8 cross-attentions', () => {
    const { found, left } = findAttention(readModel(path));
    expect(left).toEqual([]);
    expect(found.map((each) => each.selfAttention)).toEqual(found.map((_, index) => index % 2 === 0));
    expect(found[0]).toMatchObject({
      heads: 4,
      kvHeads: 4,
      headSize: 64,
      scale: 0.125,
      maskKind: 'none',
      hasCache: false,
    });
    expect(found[1]).toMatchObject({
      heads: 4,
      kvHeads: 4,
      headSize: 64,
      scale: 0.125,
      maskKind: 'additive',
    });
  });

  const feeds = {
    sample: new Tensor('float32', noise(2 * 3 * 64 * 64, 7), [2, 3, 64, 64]),
    timestep: new Tensor('float32', [0.7, 0.7], [2]),
    text_ids: int64([5, 9, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0], [2, 8]),
  };

  it('has its self-attentions replaced and the others left, and answers as before', async () => {
    const { model, report } = convertFile(path);
    expect(report.replaced).toHaveLength(8);
    expect(report.left).toHaveLength(8);
    for (const { node, reason } of report.left) {
      expect(node).toMatch(/ca\/Softmax$/);
      expect(reason).toMatch(/cross-attention/);
    }
    expect(operatorCounts(model)).toMatchObject({ FusedAttention: 8, Softmax: 8 });
    const [expected, actual] = [await runStock(path, feeds), await runStock(model, feeds)];
    expect(relativeError(actual.velocity as Tensor, expected.velocity as Tensor)).toBeLessThan(1e-4);
  });

  it('has all attentions replaced if asked to', async () => {
    const { model, report } = convertFile(path, { crossAttention: true });
    expect(report.replaced.map((each) => each.layer)).toEqual(
      Array.from({ length: 16 }, (_, layer) => layer),
    );
    expect(report.left).toEqual([]);
    const [expected, actual] = [await runStock(path, feeds), await runStock(model, feeds)];
    expect(relativeError(actual.velocity as Tensor, expected.velocity as Tensor)).toBeLessThan(1e-4);
  });
});
