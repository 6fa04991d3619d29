import { findAttention, readModel } from '@mxattn/ort-op';
import { describe, expect, it } from 'vitest';
import { noise } from './noise.js';
import { onnx } from './onnx-text.js';

/** Attention between a query, key and value that `lines` project from `x` and `other`. */
function found(lines: string) {
  const weight = (rows: number, columns: number) => ({
    dims: [rows, columns],
    data: noise(rows * columns, 3),
  });
  const heads = (name: string) => `
    ${name}4 = Reshape(${name}, [0, 0, 2, 8])
    ${name}h = Transpose<perm=[0,2,1,3]>(${name}4)`;
  const text = {
    nodes: `
      ${lines}
      ${heads('q')} ${heads('k')} ${heads('v')}
      kt = Transpose<perm=[0,1,3,2]>(kh)
      s = MatMul(qh, kt)
      p = Softmax<axis=-1>(s)
      y = MatMul(p, vh)`,
    inputs: { x: 'f32[B,S,16]', other: 'f32[B,T,16]', past: 'f32[B,P,16]', positions: 'i64[B,S]' },
    outputs: { y: 'f32[B,2,S,8]' },
    initializers: {
      w8: { dims: [16, 16], data: new Int8Array(256).fill(3) },
      wq: weight(16, 16),
      wk: weight(16, 16),
      wv: weight(16, 16),
      down: weight(16, 4),
      up: weight(4, 16),
    },
  };
  return findAttention(readModel(onnx(text))).found[0];
}

describe('self-attention', () => {
  const cases = {
    'of projections of one activation': 'q = MatMul(x, wq)\nk = MatMul(x, wk)\nv = MatMul(x, wv)',
    'with biases, norms and rotations': `
      q1 = MatMul(x, wq)
      square = Mul(q1, q1)
      mean = ReduceMean<axes=[-1]>(square)
      q2 = Div(q1, mean)
      angle = Cast<to=1>(positions)
      angle3 = Unsqueeze(angle, [2])
      cos = Cos(angle3)
      q = Mul(q2, cos)
      k1 = MatMul(x, wk)
      k = Mul(k1, cos)
      v1 = MatMul(x, wv)
      v = Add(v1, 1.0)`,
    'of one activation in two shapes': `
      flat = Reshape(x, [-1, 16])
      qf = MatMul(flat, wq)
      shape = Shape(x)
      q = Reshape(qf, shape)
      k = MatMul(x, wk)
      v = MatMul(x, wv)`,
    'of latent keys and values': `
      q = MatMul(x, wq)
      latent = MatMul(x, down)
      k = MatMul(latent, up)
      v = MatMul(latent, up)`,
    'of a latent query, too': `
      latent_q = MatMul(x, down)
      q = MatMul(latent_q, up)
      latent = MatMul(x, down)
      k = MatMul(latent, up)
      v = MatMul(latent, up)`,
    'of dynamically quantized projections': `
      h = MatMul(other, wq)
      xq xs xz = DynamicQuantizeLinear(x)
      ${['q', 'k', 'v']
        .map(
          (name) => `
            ${name}i = MatMulInteger(xq, w8, xz)
            ${name}f = Cast<to=1>(${name}i)
            ${name}s = Mul(xs, 0.01)
            ${name} = Mul(${name}f, ${name}s)`,
        )
        .join('')}`,
    'of two streams': `
      q1 = MatMul(x, wq)
      q2 = MatMul(other, wk)
      q = Concat<axis=1>(q1, q2)
      k1 = MatMul(x, wk)
      k2 = MatMul(other, wv)
      k = Concat<axis=1>(k1, k2)
      v1 = MatMul(x, wv)
      v2 = MatMul(other, wq)
      v = Concat<axis=1>(v1, v2)`,
  };
  for (const [name, lines] of Object.entries(cases)) {
    it(name, () => expect(found(lines)).toMatchObject({ selfAttention: true, hasCache: false }));
  }

  it('with a cache', () => {
    const lines = `
      q = MatMul(x, wq)
      k1 = MatMul(x, wk)
      k = Concat<axis=1>(past, k1)
      v1 = MatMul(x, wv)
      v = Concat<axis=1>(past, v1)`;
    expect(found(lines)).toMatchObject({ selfAttention: true, hasCache: true });
  });
});

describe('cross-attention', () => {
  const cases = {
    'to another activation': 'q = MatMul(x, wq)\nk = MatMul(other, wk)\nv = MatMul(other, wv)',
    'to keys and values that are inputs': 'q = MatMul(x, wq)\nk = Identity(past)\nv = Identity(past)',
    'to more than the query sees': `
      q = MatMul(x, wq)
      both = Concat<axis=1>(x, other)
      k = MatMul(both, wk)
      v = MatMul(both, wv)`,
  };
  for (const [name, lines] of Object.entries(cases)) {
    it(name, () => expect(found(lines)).toMatchObject({ selfAttention: false }));
  }
});
