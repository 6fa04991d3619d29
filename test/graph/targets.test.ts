import { convertModel, type TargetName } from '@mxattn/ort-op';
import { Tensor } from 'onnxruntime-node';
import { describe, expect, it } from 'vitest';
import { noise } from './noise.js';
import { type ModelText, onnx } from './onnx-text.js';
import { expectReplaced, feedsOf, reasonsOf } from './replacement.js';
import { operatorCounts, runStock } from './stock.js';

const operators: Readonly<Record<TargetName, string>> = {
  fused: 'FusedAttention',
  contrib: 'MultiHeadAttention',
  attention: 'Attention',
};
const targets = Object.keys(operators) as TargetName[];

const repeat = (name: string, size: number) => `
  ${name}5 = Unsqueeze(${name}, [2])
  ${name}e = Expand(${name}5, [1, 1, 2, 1, 1])
  ${name}r = Reshape(${name}e, [0, 4, 7, ${size}])`;

/** Attention of 4 query heads and 2 KV heads with lines between the scaled scores `x` and the softmax of `a`. */
function grouped(lines: string, inputs: Record<string, string> = {}): ModelText {
  return {
    nodes: `
      ${repeat('k', 8)} ${repeat('v', 6)}
      kt = Transpose<perm=[0,1,3,2]>(kr)
      s = MatMul(q, kt)
      x = Mul(s, 0.4)
      ${lines}
      p = Softmax<axis=-1>(a)
      y = MatMul(p, vr)`,
    inputs: { q: 'f32[B,4,S,8]', k: 'f32[B,2,7,8]', v: 'f32[B,2,7,6]', ...inputs },
    outputs: { y: 'f32[B,4,S,6]' },
    opset: 23,
  };
}

describe.each(targets)('the target %s', (target) => {
  const cases: Readonly<Record<string, ModelText>> = {
    'no mask': grouped('a = Identity(x)'),
    'a mask of queries and keys': grouped('a = Add(x, m)', { m: 'f32[S,T]' }),
    'a mask of keys': grouped('a = Add(x, m)', { m: 'f32[B,1,1,T]' }),
    'a bias per head': grouped('a = Add(x, m)', { m: 'f32[4,S,T]' }),
    'a boolean mask': grouped('a = Where(m, x, -3.4028235e38)', { m: 'bool[B,1,S,T]' }),
    'a mask and a bias': grouped('b = Add(x, m)\na = Where(n, -inf, b)', { m: 'f32[4,1,T]', n: 'bool[S,T]' }),
  };
  for (const [name, text] of Object.entries(cases)) {
    it(`computes attention with ${name}`, async () => {
      const { model, report } = await expectReplaced(text, { target });
      expect(operatorCounts(model)).toMatchObject({ [operators[target]]: 1 });
      expect(operatorCounts(model).Softmax).toBeUndefined();
      expect(report.replaced[0]).toMatchObject({ heads: 4, kvHeads: 2 });
    });
  }

  it('makes a mask that two layers share once', async () => {
    const layer = (input: string, output: string) => `
      t_${output} = Transpose<perm=[0,1,3,2]>(k)
      s_${output} = MatMul(${input}, t_${output})
      x_${output} = Where(m, s_${output}, -inf)
      p_${output} = Softmax<axis=-1>(x_${output})
      ${output} = MatMul(p_${output}, k)`;
    const text: ModelText = {
      nodes: `${layer('q', 'h')} ${layer('h', 'y')}`,
      inputs: { q: 'f32[B,2,S,8]', k: 'f32[B,2,T,8]', m: 'bool[B,1,S,T]' },
      outputs: { y: 'f32[B,2,S,8]' },
      opset: 23,
    };
    const { model } = await expectReplaced(text, { target, count: 2 });
    const masks = model.graph?.node.filter((node) => node.opType === 'Where' && node.input[0] === 'm');
    expect(masks).toHaveLength(1);
  });

  it('puts a mask before all that share it', async () => {
    const text: ModelText = {
      nodes: `
        kt = Transpose<perm=[0,1,3,2]>(k)
        s = MatMul(q, kt)
        x1 = Where(m, s, -inf)
        p1 = Softmax<axis=-1>(x1)
        r = MatMul(r0, kt)
        x2 = Where(m, r, -inf)
        p2 = Softmax<axis=-1>(x2)
        z = MatMul(p2, k)
        y = MatMul(p1, k)`,
      inputs: { q: 'f32[B,2,S,8]', r0: 'f32[B,2,S,8]', k: 'f32[B,2,T,8]', m: 'bool[B,1,S,T]' },
      outputs: { y: 'f32[B,2,S,8]', z: 'f32[B,2,S,8]' },
      opset: 23,
    };
    const { model } = await expectReplaced(text, { target, count: 2 });
    const seen = new Set(['', 'mxattn.precision', 'mxattn.no_bias', ...Object.keys(text.inputs)]);
    for (const node of model.graph?.node ?? []) {
      for (const input of node.input) expect(seen).toContain(input);
      for (const output of node.output) seen.add(output);
    }
  });

  it('gives zeros in rows with every key masked', async () => {
    const text = grouped('a = Add(x, m)', { m: 'f32[S,T]' });
    const mask = Float32Array.from({ length: 5 * 7 }, (_, at) => (at < 7 ? -Infinity : 0));
    const { model } = convertModel(onnx(text), { target, crossAttention: true });
    const { y } = await runStock(model, { ...feedsOf(text.inputs), m: new Tensor('float32', mask, [5, 7]) });
    const rows = y!.data as Float32Array;
    expect([...rows.subarray(0, 6)]).toEqual([0, 0, 0, 0, 0, 0]);
    expect(rows.every(Number.isFinite)).toBe(true);
    expect(rows[6]).not.toBe(0);
  });
});

describe('the target contrib', () => {
  it('reads the keys of grouped heads without copies of them', async () => {
    const { model } = await expectReplaced(grouped('a = Identity(x)'), { target: 'contrib' });
    expect(operatorCounts(model).Expand).toBeUndefined();
    const node = model.graph?.node.find(({ opType }) => opType === 'MultiHeadAttention');
    expect(node?.attribute.find(({ name }) => name === 'num_heads')?.i).toBe(2n);
  });
});

describe('the target contrib, of causal attention', () => {
  /** Causal attention of one token sequence, as an Attention node of ONNX. */
  const causal = (heads: number, attributes: string, [h, kv]: readonly [number, number]): ModelText => ({
    nodes: `
      k = MatMul(x, wk)
      v = MatMul(x, wv)
      q = MatMul(x, wq)
      y = Attention<is_causal=1,q_num_heads=${heads},${attributes}>(q, k, v)`,
    inputs: { x: 'f32[B,S,12]' },
    initializers: {
      wq: { dims: [12, h], data: noise(12 * h, 1) },
      wk: { dims: [12, kv], data: noise(12 * kv, 2) },
      wv: { dims: [12, kv], data: noise(12 * kv, 3) },
    },
    outputs: { y: `f32[B,S,${heads * 8}]` },
    opset: 23,
  });

  it.each([
    ['with shared heads', causal(4, 'kv_num_heads=2,scale=0.4', [32, 16])],
    ['with a softcap', causal(2, 'kv_num_heads=2,softcap=1.5', [16, 16])],
  ])('is GroupQueryAttention: %s', async (_, text) => {
    const { model, report } = await expectReplaced(text, { target: 'contrib' });
    expect(operatorCounts(model)).toMatchObject({ GroupQueryAttention: 1 });
    expect(operatorCounts(model).MultiHeadAttention).toBeUndefined();
    expect(report.replaced[0]).toMatchObject({ selfAttention: true });
  });

  it('is MultiHeadAttention where a further mask may leave rows without keys', async () => {
    const text = causal(4, 'kv_num_heads=2', [32, 16]);
    const masked = {
      ...text,
      nodes: text.nodes.replace('(q, k, v)', '(q, k, v, m)'),
      inputs: { ...text.inputs, m: 'f32[S,S]' },
    };
    const { model } = await expectReplaced(masked, { target: 'contrib' });
    expect(operatorCounts(model)).toMatchObject({ MultiHeadAttention: 1 });
  });
});

describe('the target attention', () => {
  const target = 'attention';

  it('takes the softcap along', async () => {
    const { report } = await expectReplaced(grouped('b = Div(x, 2.0)\nt = Tanh(b)\na = Mul(t, 2.0)'), {
      target,
    });
    expect(report.replaced[0]).toMatchObject({ softcap: 2 });
  });

  it('needs operator set 23', () => {
    const text = { ...grouped('a = Identity(x)'), opset: 22 };
    expect(reasonsOf(text, target)).toEqual(['Attention needs operator set 23, the model imports 22']);
  });

  it('leaves Attention nodes alone', () => {
    const text = { ...grouped(''), nodes: 'y = Attention(q, k, v)' };
    expect(reasonsOf(text, target)).toEqual(['it is an Attention node already']);
  });
});
