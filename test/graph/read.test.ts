import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { MxattnError } from '@mxattn/core';
import { convertModel, modelInputs, modelOutputs, readModel, writeModel } from '@mxattn/ort-op';
import type { Tensor } from 'onnxruntime-node';
import { afterAll, describe, expect, it } from 'vitest';
import { onnx } from './onnx-text.js';
import { feedsOf } from './replacement.js';
import { exampleBytes, exampleModel, relativeError, runStock } from './stock.js';

describe('files that are no model', () => {
  const folder = mkdtempSync(join(tmpdir(), 'mxattn-'));
  afterAll(() => rmSync(folder, { recursive: true }));

  function errorOf(name: string, bytes: Uint8Array): string {
    const path = join(folder, name);
    writeFileSync(path, bytes);
    for (const open of [readModel, convertModel]) {
      expect(() => open(path)).toThrow(MxattnError);
      expect(() => open(path)).toThrow(`${path} is not an ONNX model: `);
      expect(() => open(bytes)).toThrow('the model is not an ONNX model: ');
    }
    try {
      readModel(path);
    } catch (error) {
      return (error as Error).message.split('ONNX model: ')[1] ?? '';
    }
    return 'no error';
  }

  it('are named together with what is wrong', () => {
    const bytes = exampleBytes('story-llama');
    expect(errorOf('empty.onnx', new Uint8Array())).toBe('the file is empty');
    expect(errorOf('half.onnx', bytes.subarray(0, bytes.length / 2))).toMatch(/truncated/);
    expect(errorOf('short.onnx', bytes.subarray(0, bytes.length - 1))).toMatch(/truncated/);
    expect(errorOf('start.onnx', bytes.subarray(0, 12))).toMatch(/truncated|holds no graph/);
    const text = new TextEncoder().encode('version https://git-lfs.github.com/spec/v1\noid sha256:0123\n');
    expect(errorOf('pointer.onnx', text)).not.toBe('no error');
    expect(errorOf('page.onnx', new TextEncoder().encode('<!DOCTYPE html><html></html>'))).not.toBe(
      'no error',
    );
    expect(errorOf('zeros.onnx', new Uint8Array(1000))).not.toBe('no error');
  });

  it('may be missing', () => {
    const path = join(folder, 'missing.onnx');
    expect(() => readModel(path)).toThrow(new MxattnError(`cannot read the model ${path}: no such file`));
  });
});

describe('a model read', () => {
  it('shares its weights with the bytes it was read from', () => {
    const bytes = exampleBytes('emoji-dit');
    const tensors = readModel(bytes).graph?.initializer ?? [];
    expect(tensors.length).toBeGreaterThan(50);
    for (const tensor of tensors) expect(tensor.rawData.buffer).toBe(bytes.buffer);
  });

  it('holds typed data as bytes too, and knows small constants among them', async () => {
    const text = {
      nodes: `
        kt = Transpose<perm=[0,1,3,2]>(k)
        s = MatMul(q, kt)
        x = Mul(s, factor)
        p = Softmax<axis=-1>(x)
        y = MatMul(p, k)`,
      inputs: { q: 'f32[B,2,S,8]', k: 'f32[B,2,T,8]' },
      outputs: { y: 'f32[B,2,S,8]' },
      initializers: { factor: { dims: [1], data: Float32Array.of(0.3) } },
    };
    const model = readModel(onnx(text));
    const factor = model.graph!.initializer[0]!;
    // Packed float_data is the same bytes as little-endian raw_data.
    factor.floatData = [factor.rawData];
    Reflect.deleteProperty(factor, 'rawData');
    const bytes = writeModel(model);
    const again = readModel(bytes);
    expect(again.graph!.initializer[0]!.floatData[0]!.buffer).toBe(bytes.buffer);
    const { model: converted, report } = convertModel(again, { crossAttention: true });
    expect(report.replaced[0]?.scale).toBeCloseTo(0.3, 6);
    const feeds = feedsOf(text.inputs);
    const [expected, actual] = [await runStock(again, feeds), await runStock(converted, feeds)];
    expect(relativeError(actual.y as Tensor, expected.y as Tensor)).toBeLessThan(1e-5);
  });

  it('is written back byte for byte', () => {
    const bytes = exampleBytes('story-llama');
    expect(Buffer.compare(writeModel(readModel(bytes)), bytes)).toBe(0);
  });

  it('keeps fields of newer ONNX versions', () => {
    const bytes = exampleBytes('story-llama');
    // Field 1000, a string of two bytes.
    const unknown = Uint8Array.of(0xc2, 0x3e, 2, 0x68, 0x69);
    const written = writeModel(convertModel(Buffer.concat([bytes, unknown])).model);
    expect(Buffer.from(written).includes(Buffer.from(unknown))).toBe(true);
  });

  it('says what goes in and out', () => {
    const model = readModel(exampleModel('story-llama'));
    const inputs = modelInputs(model);
    expect(inputs.slice(0, 4)).toEqual([
      { name: 'input_ids', dims: ['batch_size', 'sequence_length'], type: 'int64' },
      { name: 'attention_mask', dims: ['batch_size', 'total_sequence_length'], type: 'int64' },
      { name: 'position_ids', dims: ['batch_size', 'sequence_length'], type: 'int64' },
      { name: 'past_key_values.0.key', dims: ['batch_size', 2, 'past_sequence_length', 64], type: 'float32' },
    ]);
    expect(modelOutputs(model)[0]).toEqual({
      name: 'logits',
      dims: ['batch_size', 'sequence_length', 4096],
      type: 'float32',
    });
    // The precision input has a default, so nobody has to feed it.
    expect(modelInputs(convertModel(model).model)).toEqual(inputs);
  });
});

describe('a conversion', () => {
  it('leaves the model passed in as it was', () => {
    const bytes = exampleBytes('emoji-dit');
    const model = readModel(bytes);
    convertModel(model);
    expect(Buffer.compare(writeModel(model), bytes)).toBe(0);
  });

  it('returns a model with nothing to replace unchanged', () => {
    const model = readModel(exampleModel('emoji-dit'));
    model.graph!.node = model.graph!.node.filter((node) => node.opType !== 'Softmax');
    const result = convertModel(model);
    expect(result.model).toBe(model);
    expect(result.report).toEqual({ replaced: [], left: [] });
  });

  it('leaves a converted model alone and reports what is in it', () => {
    const once = convertModel(exampleModel('emoji-dit'));
    const twice = convertModel(once.model, { crossAttention: true });
    expect(twice.model).toBe(once.model);
    expect(twice.report.replaced).toHaveLength(8);
    expect(twice.report.replaced[0]).toMatchObject({
      heads: 4,
      headSize: 64,
      selfAttention: true,
      maskKind: 'none',
    });
    expect(new Set(twice.report.left.map((each) => each.reason))).toEqual(
      new Set(['the model is converted already; convert the original instead']),
    );
  });

  it('refuses an unknown target by name', () => {
    const target = 'fussed' as 'fused';
    expect(() => convertModel(exampleModel('story-llama'), { target })).toThrow(/no target is named fussed/);
  });
});
