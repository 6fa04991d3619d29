import { createSession } from '@mxattn/ort-op';
import { Tensor } from 'onnxruntime-node';
import { describe, expect, it } from 'vitest';
import { normal, relativeError } from '../conformance/random.js';
import { onnx } from '../graph/onnx-text.js';
import { floats, stockSession } from './support.js';

const size = 2 * 32;
const length = 200;

function model(nodes: string) {
  const input = `f32[B,S,${size}]`;
  return onnx({
    nodes,
    inputs: { x: input },
    outputs: { y: input },
    opset: 23,
  });
}

describe('what masks by position', () => {
  it.each([
    'y = Attention<is_causal=1, q_num_heads=2, kv_num_heads=2>(x, x, x)',
    'y = com.microsoft.MultiHeadAttention<num_heads=2, unidirectional=1>(x, x, x)',
  ])('gives the answers of stock: %s', async (nodes) => {
    const bytes = model(nodes);
    const feeds = { x: new Tensor('float32', normal(length * size, 1), [1, length, size]) };
    const stock = await stockSession(bytes);
    const expected = floats((await stock.run(feeds)).y);
    const session = await createSession(bytes, {
      backend: 'native',
      threads: 2,
      precision: 'f32',
    });
    expect(session.report.replaced).toHaveLength(1);
    expect(relativeError(floats((await session.run(feeds)).y), expected)).toBeLessThan(1e-5);
    await Promise.all([stock.release(), session.release()]);
  });
});
