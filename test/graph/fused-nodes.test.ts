import { fusedValues } from '@mxattn/ort-op';
import { describe, expect, it } from 'vitest';
import { expectReplaced, reasonsOf } from './replacement.js';

const q3 = { q: 'f32[B,S,16]', k: 'f32[B,T,16]', v: 'f32[B,T,12]' };
const q4 = { q: 'f32[B,4,S,8]', k: 'f32[B,2,T,8]', v: 'f32[B,2,T,6]' };
const past = { pk: 'f32[B,2,P,8]', pv: 'f32[B,2,P,6]' };
const y3 = { y: 'f32[B,S,12]' };
const y4 = { y: 'f32[B,4,S,6]' };
const presents = { nk: 'f32[B,2,?,8]', nv: 'f32[B,2,?,6]' };

describe('ai.onnx Attention', () => {
  const opset = 23;

  it('with grouped heads', async () => {
    const { report } = await expectReplaced({
      nodes: 'y = Attention(q, k, v)',
      inputs: q4,
      outputs: y4,
      opset,
    });
    expect(report.replaced[0]).toMatchObject({ heads: 4, kvHeads: 2, headSize: 8, valueHeadSize: 6 });
    expect(report.replaced[0]?.scale).toBeCloseTo(1 / Math.sqrt(8), 6);
  });

  it('of three axes', async () => {
    const nodes = 'y = Attention<q_num_heads=2, kv_num_heads=2, scale=0.3>(q, k, v)';
    const { report } = await expectReplaced({ nodes, inputs: q3, outputs: y3, opset });
    expect(report.replaced[0]).toMatchObject({ heads: 2, kvHeads: 2, headSize: 8, valueHeadSize: 6 });
  });

  it('with a boolean mask', async () => {
    await expectReplaced({
      nodes: 'y = Attention(q, k, v, m)',
      inputs: { ...q4, m: 'bool[B,1,S,T]' },
      outputs: y4,
      opset,
    });
  });

  it('with a numeric mask', async () => {
    await expectReplaced({
      nodes: 'y = Attention(q, k, v, m)',
      inputs: { ...q4, m: 'f32[S,T]' },
      outputs: y4,
      opset,
    });
  });

  it('that is causal', async () => {
    await expectReplaced({ nodes: 'y = Attention<is_causal=1>(q, k, v)', inputs: q4, outputs: y4, opset });
  });

  it('that is causal, with as many keys as queries: without a mask', async () => {
    const inputs = { q: 'f32[B,4,S,8]', k: 'f32[B,2,S,8]', v: 'f32[B,2,S,6]' };
    const nodes = 'y = Attention<is_causal=1>(q, k, v)';
    const { model } = await expectReplaced({ nodes, inputs, outputs: y4, opset });
    expect(model.graph?.node.map((node) => node.opType)).toEqual(['FusedAttention']);
    expect(fusedValues(model)[0]).toMatchObject({ bias: undefined, window: { left: -1, right: 0 } });
  });

  it('that is causal, with a cache and as many new keys as queries: without a mask', async () => {
    const { model } = await expectReplaced({
      nodes: 'y nk nv = Attention<is_causal=1>(q, k, v, , pk, pv)',
      inputs: { q: 'f32[B,4,S,8]', k: 'f32[B,2,S,8]', v: 'f32[B,2,S,6]', ...past },
      outputs: { ...y4, ...presents },
      opset,
    });
    expect(fusedValues(model)[0]).toMatchObject({ bias: undefined, window: { left: -1, right: 0 } });
  });

  it('that is causal, beside a mask', async () => {
    const { model } = await expectReplaced({
      nodes: 'y = Attention<is_causal=1>(q, k, v, m)',
      inputs: { q: 'f32[B,4,S,8]', k: 'f32[B,2,S,8]', v: 'f32[B,2,S,6]', m: 'bool[S,S]' },
      outputs: y4,
      opset,
    });
    expect(fusedValues(model)[0]).toMatchObject({ window: { left: -1, right: 0 } });
    expect(fusedValues(model)[0]?.bias).toBeDefined();
  });

  it('that is causal, but not known to have as many keys as queries: with a mask', async () => {
    const nodes = 'y = Attention<is_causal=1>(q, k, v)';
    const { model } = await expectReplaced({ nodes, inputs: q4, outputs: y4, opset });
    expect(fusedValues(model)[0]).toMatchObject({ window: { left: -1, right: -1 } });
    expect(fusedValues(model)[0]?.bias).toBeDefined();
  });

  it('with a cache', async () => {
    const { report } = await expectReplaced({
      nodes: 'y nk nv = Attention<is_causal=1>(q, k, v, , pk, pv)',
      inputs: { ...q4, ...past },
      outputs: { ...y4, ...presents },
      opset,
    });
    expect(report.replaced[0]?.hasCache).toBe(true);
  });

  it('with a window, which counts the keys before the current one', async () => {
    const inputs = { q: 'f32[B,2,S,8]', k: 'f32[B,2,S,8]', v: 'f32[B,2,S,6]' };
    const outputs = { y: 'f32[B,2,S,6]' };
    const nodes = 'y = Attention<is_causal=1, left_window_size=2>(q, k, v)';
    await expectReplaced(
      { nodes, inputs, outputs, opset: 25 },
      {
        reference: {
          nodes: `
            sizes = Shape(q)
            length = Gather<axis=0>(sizes, 2i)
            at = Range(0i, length, 1i)
            row = Unsqueeze(at, [1])
            first = Sub(row, 2i)
            future = Greater(at, row)
            past = Less(at, first)
            hidden = Or(future, past)
            shown = Not(hidden)
            y = Attention(q, k, v, shown)`,
          inputs,
          outputs,
          opset: 23,
        },
      },
    );
  });

  it.each([160, 256, 512])('of head size %i with one mask for all heads', async (size) => {
    const inputs = { q: `f32[1,4,S,${size}]`, k: `f32[1,4,T,${size}]`, v: `f32[1,4,T,${size}]` };
    await expectReplaced({
      nodes: 'y = Attention(q, k, v, m)',
      inputs: { ...inputs, m: 'f32[1,1,S,T]' },
      outputs: { y: `f32[1,4,S,${size}]` },
      opset,
    });
  });

  it('is left when its heads cannot be shared', () => {
    const inputs = { q: 'f32[B,4,S,8]', k: 'f32[B,3,T,8]', v: 'f32[B,3,T,6]' };
    expect(reasonsOf({ nodes: 'y = Attention(q, k, v)', inputs, outputs: y4, opset })).toEqual([
      'its 4 query heads cannot share 3 heads of keys',
    ]);
  });

  it('is left when its scores are an output', () => {
    const outputs = { ...y4, s: 'f32[B,4,S,T]' };
    expect(reasonsOf({ nodes: 'y  nk nv s = Attention(q, k, v)', inputs: q4, outputs, opset })).toEqual([
      'its scores or probabilities are an output',
    ]);
  });

  it('that is soft-capped', async () => {
    const nodes = 'y = Attention<softcap=0.5>(q, k, v)';
    const { report } = await expectReplaced({ nodes, inputs: q4, outputs: y4, opset });
    expect(report.replaced[0]).toMatchObject({ softcap: 0.5 });
  });

  it('of which one is soft-capped and one is not', async () => {
    const nodes = 'h = Attention<softcap=0.5>(q, k, k)\ny = Attention(h, k, v)';
    await expectReplaced({ nodes, inputs: q4, outputs: y4, opset }, { count: 2 });
  });
});

describe('com.microsoft MultiHeadAttention', () => {
  const node = (inputs: string, more = '', outputs = 'y') =>
    `${outputs} = com.microsoft.MultiHeadAttention<num_heads=2${more}>(${inputs})`;

  it('with separate inputs', async () => {
    const { report } = await expectReplaced({ nodes: node('q, k, v'), inputs: q3, outputs: y3 });
    expect(report.replaced[0]).toMatchObject({ heads: 2, headSize: 8, valueHeadSize: 6 });
  });

  it('with a bias of its projections', async () => {
    await expectReplaced({ nodes: node('q, k, v, b'), inputs: { ...q3, b: 'f32[44]' }, outputs: y3 });
  });

  // The stock CPU kernel takes no packed inputs, so the answers are those of the node with its inputs unpacked.
  const unpacked = (packed: string, parts: string[]) =>
    parts
      .map(
        (name, index) => `
          ${name}4 = Gather<axis=3>(${packed}, ${index}i)
          ${name}3 = Reshape(${name}4, [0, 0, -1])`,
      )
      .join('');

  it('with a packed query, key and value', async () => {
    const text = { nodes: node('qkv'), inputs: { qkv: 'f32[B,S,2,3,8]' }, outputs: { y: 'f32[B,S,16]' } };
    const { report } = await expectReplaced(text, {
      reference: {
        ...text,
        nodes: `${unpacked('qkv', ['q', 'k', 'v'])}\n${node('q3, k3, v3')}`,
      },
    });
    expect(report.replaced[0]?.selfAttention).toBe(true);
  });

  it('with a packed query, key and value and a bias of their projections', async () => {
    const inputs = { qkv: 'f32[B,S,2,3,8]', b: 'f32[48]' };
    const text = { nodes: node('qkv, , , b'), inputs, outputs: { y: 'f32[B,S,16]' } };
    const nodes = `${unpacked('qkv', ['q', 'k', 'v'])}\n${node('q3, k3, v3, b')}`;
    await expectReplaced(text, { reference: { ...text, nodes } });
  });

  it('with packed keys and values and a bias of their projections', async () => {
    const inputs = { q: 'f32[B,S,16]', kv: 'f32[B,T,2,2,8]', b: 'f32[48]' };
    const text = { nodes: node('q, kv, , b'), inputs, outputs: { y: 'f32[B,S,16]' } };
    const nodes = `${unpacked('kv', ['k', 'v'])}\n${node('q, k3, v3, b')}`;
    await expectReplaced(text, { reference: { ...text, nodes } });
  });

  it('that hands out keys and values without any of an earlier run', async () => {
    await expectReplaced({
      nodes: node('q, k, v', '', 'y nk nv'),
      inputs: { q: 'f32[B,S,16]', k: 'f32[B,S,16]', v: 'f32[B,S,16]' },
      outputs: { y: 'f32[B,S,16]', nk: 'f32[B,2,?,8]', nv: 'f32[B,2,?,8]' },
    });
  });

  it('with a cache in a buffer that is longer', async () => {
    const inputs = {
      q: 'f32[B,2,16]',
      k: 'f32[B,2,16]',
      v: 'f32[B,2,16]',
      pk: 'f32[B,2,11,8]',
      pv: 'f32[B,2,11,8]',
    };
    const outputs = { y: 'f32[B,2,16]', nk: 'f32[B,2,?,8]', nv: 'f32[B,2,?,8]' };
    const cut = ['k', 'v'].map(
      (each) => `c${each} = Slice(p${each}, [0], [6], [2])\nr${each} = Slice(p${each}, [8], [11], [2])`,
    );
    const whole = ['k', 'v'].map((each) => `n${each} = Concat<axis=2>(m${each}, r${each})`);
    // The stock CPU kernel takes no buffers, so the answers are those of the node with its cache cut out.
    await expectReplaced(
      {
        nodes: `length = Cast<to=6>([6])\n${node('q, k, v, , , , pk, pv, length', '', 'y nk nv')}`,
        inputs,
        outputs,
      },
      {
        reference: {
          nodes: [...cut, node('q, k, v, , , , ck, cv', '', 'y mk mv'), ...whole].join('\n'),
          inputs,
          outputs,
        },
      },
    );
  });

  it('with packed keys and values', async () => {
    const inputs = { q: 'f32[B,S,16]', kv: 'f32[B,T,2,2,8]' };
    const text = { nodes: node('q, kv'), inputs, outputs: { y: 'f32[B,S,16]' } };
    await expectReplaced(text, {
      reference: { ...text, nodes: `${unpacked('kv', ['k', 'v'])}\n${node('q, k3, v3')}` },
    });
  });

  it('with keys and values in heads', async () => {
    const inputs = { q: 'f32[B,S,16]', k: 'f32[B,2,T,8]', v: 'f32[B,2,T,8]' };
    await expectReplaced({ nodes: node('q, k, v'), inputs, outputs: { y: 'f32[B,S,16]' } });
  });

  it('with padded keys', async () => {
    await expectReplaced({ nodes: node('q, k, v, , m'), inputs: { ...q3, m: 'i32[B,T]' }, outputs: y3 });
  });

  it('with a bias of its scores, a scale of its own', async () => {
    const inputs = { ...q3, b: 'f32[1,2,S,T]' };
    const { report } = await expectReplaced({
      nodes: node('q, k, v, , , b', ', scale=0.5'),
      inputs,
      outputs: y3,
    });
    expect(report.replaced[0]?.scale).toBe(0.5);
  });

  it('that is causal, with a cache', async () => {
    const square = { q: 'f32[B,S,16]', k: 'f32[B,S,16]', v: 'f32[B,S,16]' };
    await expectReplaced({
      nodes: node('q, k, v, , , , pk, pv', ', unidirectional=1', 'y nk nv'),
      inputs: { ...square, pk: 'f32[B,2,P,8]', pv: 'f32[B,2,P,8]' },
      outputs: { y: 'f32[B,S,16]', nk: 'f32[B,2,?,8]', nv: 'f32[B,2,?,8]' },
    });
  });
});

describe('com.microsoft Attention', () => {
  const weights = { w: 'f32[10,48]', b: 'f32[48]' };
  const inputs = { x: 'f32[B,S,10]', ...weights };
  const node = (list: string, more = '', outputs = 'y') =>
    `${outputs} = com.microsoft.Attention<num_heads=2${more}>(${list})`;

  it('with its projections', async () => {
    const { report } = await expectReplaced({
      nodes: node('x, w, b'),
      inputs,
      outputs: { y: 'f32[B,S,16]' },
    });
    expect(report.replaced[0]).toMatchObject({ heads: 2, headSize: 8, selfAttention: true });
  });

  it('with padded keys', async () => {
    const padded = { ...inputs, m: 'i32[B,S]' };
    await expectReplaced({ nodes: node('x, w, b, m'), inputs: padded, outputs: { y: 'f32[B,S,16]' } });
  });

  it('with the number of keys', async () => {
    const padded = { ...inputs, m: 'i32[B]' };
    await expectReplaced({ nodes: node('x, w, b, m'), inputs: padded, outputs: { y: 'f32[B,S,16]' } });
  });

  it('is left when its padding is of another form', () => {
    const padded = { ...inputs, m: 'i32[11]' };
    expect(reasonsOf({ nodes: node('x, w, b, m'), inputs: padded, outputs: { y: 'f32[B,S,16]' } })).toEqual([
      'its padding is not given as a mask or as the number of keys',
    ]);
  });

  it('behind fused norms', async () => {
    await expectReplaced({
      nodes: `
        h mean variance sum = com.microsoft.SkipLayerNormalization(x, skip, gamma)
        ${node('h, w, b')}
        z = Add(sum, h)`,
      inputs: { ...inputs, skip: 'f32[B,S,10]', gamma: 'f32[10]' },
      outputs: { y: 'f32[B,S,16]', z: 'f32[B,S,10]' },
    });
  });

  it('with a mask for each query', async () => {
    const padded = { ...inputs, m: 'i32[B,S,S]' };
    await expectReplaced({ nodes: node('x, w, b, m'), inputs: padded, outputs: { y: 'f32[B,S,16]' } });
  });

  it('that is causal', async () => {
    await expectReplaced({
      nodes: node('x, w, b', ', unidirectional=1'),
      inputs,
      outputs: { y: 'f32[B,S,16]' },
    });
  });

  it('with a cache', async () => {
    await expectReplaced({
      nodes: node('x, w, b, , past', ', unidirectional=1', 'y present'),
      inputs: { ...inputs, past: 'f32[2,B,2,P,8]' },
      outputs: { y: 'f32[B,S,16]', present: 'f32[2,B,2,?,8]' },
    });
  });

  it('with values of another size', async () => {
    await expectReplaced({
      nodes: node('x, w, b', ', qkv_hidden_sizes=[16, 16, 8]'),
      inputs: { x: 'f32[B,S,10]', w: 'f32[10,40]', b: 'f32[40]' },
      outputs: { y: 'f32[B,S,8]' },
    });
  });
});
