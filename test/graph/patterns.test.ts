import { convertModel, findAttention, readModel } from '@mxattn/ort-op';
import { Tensor } from 'onnxruntime-node';
import { describe, expect, it } from 'vitest';
import { noise } from './noise.js';
import { type ModelText, onnx } from './onnx-text.js';
import { expectReplaced, feedsOf, reasonsOf } from './replacement.js';
import { operatorCounts, relativeError, runStock } from './stock.js';

/** Query, key and value of 2 heads of 8, 5 and 7 tokens, as most of the graphs below take them. */
const qkv = { q: 'f32[B,2,S,8]', k: 'f32[B,2,T,8]', v: 'f32[B,2,T,6]' };

/** A model around the way from scores `s` = q kT to probabilities' input `x`. */
function withScores(lines: string, more: Partial<ModelText> = {}): ModelText {
  const { inputs, ...rest } = more;
  return {
    nodes: `
      kt = Transpose<perm=[0,1,3,2]>(k)
      s = MatMul(q, kt)
      ${lines}
      p = Softmax<axis=-1>(x)
      y = MatMul(p, v)`,
    inputs: { ...qkv, ...inputs },
    outputs: { y: 'f32[B,2,S,6]' },
    ...rest,
  };
}

describe('scale', () => {
  const cases: Record<string, { lines: string; scale: number }> = {
    'a Mul of the scores': { lines: 'x = Mul(s, 0.25)', scale: 0.25 },
    'a Mul from the left': { lines: 'x = Mul(0.25, s)', scale: 0.25 },
    'a Div of the scores': { lines: 'x = Div(s, 5.0)', scale: 0.2 },
    'a Div by the square root of a size': {
      lines: `
        shape = Shape(q)
        size = Gather(shape, -1i)
        float = Cast<to=1>(size)
        root = Sqrt(float)
        x = Div(s, root)`,
      scale: 1 / Math.sqrt(8),
    },
    'a power of a size': {
      lines: `
        shape = Shape(q)
        size = Slice(shape, [-1], [9223372036854775807])
        float = Cast<to=1>(size)
        factor = Pow(float, -0.5)
        x = Mul(s, factor)`,
      scale: 1 / Math.sqrt(8),
    },
    absent: { lines: 'x = Identity(s)', scale: 1 },
  };
  for (const [name, { lines, scale }] of Object.entries(cases)) {
    it(`is ${name}`, async () => {
      const { report } = await expectReplaced(withScores(lines));
      expect(report.replaced[0]?.scale).toBeCloseTo(scale, 6);
    });
  }

  it('is a factor on the query, on the key, or on both', async () => {
    for (const [onQuery, onKey] of [
      [0.5, 1],
      [1, 0.5],
      [0.6, 0.6],
    ]) {
      const { report } = await expectReplaced({
        ...withScores(''),
        nodes: `
          qs = Mul(q, ${onQuery})
          kt = Transpose<perm=[0,1,3,2]>(k)
          ks = Mul(kt, ${onKey})
          s = MatMul(qs, ks)
          p = Softmax<axis=3>(s)
          y = MatMul(p, v)`,
      });
      expect(report.replaced[0]?.scale).toBeCloseTo(onQuery! * onKey!, 6);
    }
  });

  it('behind a mask scales the mask too', async () => {
    await expectReplaced(withScores('a = Add(s, m)\nx = Mul(a, 0.3)', { inputs: { m: 'f32[S,T]' } }));
  });
});

describe('mask', () => {
  const cases: Record<string, { lines: string; mask: string; kind: string }> = {
    'added, of 4 axes': { lines: 'x = Add(s, m)', mask: 'f32[B,1,S,T]', kind: 'additive' },
    'added, per head': { lines: 'x = Add(s, m)', mask: 'f32[B,2,S,T]', kind: 'additive' },
    'added, of 3 axes': { lines: 'x = Add(m, s)', mask: 'f32[2,S,T]', kind: 'additive' },
    'added, of 2 axes': { lines: 'x = Add(m, s)', mask: 'f32[S,T]', kind: 'additive' },
    'added, for keys alone': { lines: 'x = Add(s, m)', mask: 'f32[B,1,1,T]', kind: 'additive' },
    'of kept keys, the lowest number elsewhere': {
      lines: 'x = Where(m, s, -3.4028235e38)',
      mask: 'bool[B,1,S,T]',
      kind: 'boolean',
    },
    'of kept keys, -10000 elsewhere': {
      lines: 'x = Where(m, s, -10000)',
      mask: 'bool[B,1,1,T]',
      kind: 'boolean',
    },
    'of masked keys': { lines: 'x = Where(m, -inf, s)', mask: 'bool[S,T]', kind: 'boolean' },
    'as numbers from a boolean': {
      lines: 'n = Where(m, 0.0, -inf)\nx = Add(s, n)',
      mask: 'bool[B,1,S,T]',
      kind: 'additive',
    },
    'of masked keys behind a bias': {
      lines: 'a = Add(s, b)\nx = Where(m, -inf, a)',
      mask: 'bool[S,T]',
      kind: 'mixed',
    },
    'of masked keys before a bias': {
      lines: 'a = Where(m, -3.4028235e38, s)\nx = Add(b, a)',
      mask: 'bool[B,1,S,T]',
      kind: 'mixed',
    },
    twice: { lines: 'a = Add(s, b)\nx = Add(a, m)', mask: 'f32[B,1,1,T]', kind: 'additive' },
  };
  for (const [name, { lines, mask, kind }] of Object.entries(cases)) {
    it(name, async () => {
      const { report } = await expectReplaced(withScores(lines, { inputs: { m: mask, b: 'f32[1,2,S,T]' } }));
      expect(report.replaced[0]?.maskKind).toBe(kind);
    });
  }

  it('of every key with the lowest number weighs all keys alike', async () => {
    const text = withScores('x = Where(m, s, -3.4028235e38)', { inputs: { m: 'bool[B,1,S,T]' } });
    const feeds = { ...feedsOf(text.inputs), m: new Tensor('bool', Array(3 * 5 * 7).fill(0), [3, 1, 5, 7]) };
    const model = readModel(onnx(text));
    const { model: converted } = convertModel(model, { crossAttention: true });
    const [expected, actual] = [await runStock(model, feeds), await runStock(converted, feeds)];
    expect(relativeError(actual.y as Tensor, expected.y as Tensor)).toBeLessThan(1e-5);
  });

  it('of every key with -inf gives zeros', async () => {
    const lines = 'a = Add(s, m)\nx = Identity(a)';
    const text = withScores(lines, { inputs: { m: 'f32[S,T]' } });
    const mask = Float32Array.from({ length: 5 * 7 }, (_, at) => (at < 7 ? -Infinity : 0));
    const { model } = convertModel(onnx(text), { crossAttention: true });
    const { y } = await runStock(model, { ...feedsOf(text.inputs), m: new Tensor('float32', mask, [5, 7]) });
    const rows = y!.data as Float32Array;
    expect([...rows.subarray(0, 6)]).toEqual([0, 0, 0, 0, 0, 0]);
    expect(rows.every(Number.isFinite)).toBe(true);
    expect(rows[6]).not.toBe(0);
  });

  it('that is soft-capped', async () => {
    const { report } = await expectReplaced(
      withScores('a = Mul(s, 0.3)\nb = Div(a, 0.5)\nt = Tanh(b)\nx = Mul(t, 0.5)'),
    );
    expect(report.replaced[0]?.softcap).toBe(0.5);
    expect(report.replaced[0]?.scale).toBeCloseTo(0.3, 6);
  });

  it('whose NaN rows are cleaned', async () => {
    const text = withScores('x = Add(s, m)', { inputs: { m: 'f32[S,T]' } });
    const nodes = text.nodes.replace(
      'y = MatMul(p, v)',
      'nan = IsNaN(p)\nclean = Where(nan, 0.0, p)\ny = MatMul(clean, v)',
    );
    const { model } = await expectReplaced({ ...text, nodes });
    expect(operatorCounts(model)).toMatchObject({ FusedAttention: 1 });
    expect(operatorCounts(model).IsNaN).toBeUndefined();
  });

  it('of windows, repeated for each picture', async () => {
    // Swin: 2 pictures of 3 windows.
    const { report } = await expectReplaced({
      nodes: `
        kt = Transpose<perm=[0,1,3,2]>(k)
        s = MatMul(q, kt)
        b = Add(s, positions)
        five = Reshape(b, [2, 3, 2, 5, 5])
        m5 = Unsqueeze(m, [0, 2])
        a = Add(five, m5)
        x = Reshape(a, [6, 2, 5, 5])
        p = Softmax<axis=-1>(x)
        y = MatMul(p, v)`,
      inputs: {
        q: 'f32[6,2,5,8]',
        k: 'f32[6,2,5,8]',
        v: 'f32[6,2,5,6]',
        positions: 'f32[2,5,5]',
        m: 'f32[3,5,5]',
      },
      outputs: { y: 'f32[6,2,5,6]' },
    });
    expect(report.replaced[0]?.maskKind).toBe('additive');
  });

  it('filled in from a tensor of one number', async () => {
    const lines = 'shape = Shape(s)\nlow = Expand(-inf, shape)\nx = Where(m, low, s)';
    await expectReplaced(withScores(lines, { inputs: { m: 'bool[S,T]' } }));
  });

  it('that copies the shape of the scores', async () => {
    const lines = 'shape = Shape(s)\nm4 = Expand(m, shape)\nx = Where(m4, -inf, s)';
    await expectReplaced(withScores(lines, { inputs: { m: 'bool[B,1,1,T]' } }));
  });
});

describe('query, key and value', () => {
  it('with a key transposed together with its heads', async () => {
    await expectReplaced({
      nodes: `
        kt = Transpose<perm=[0,2,3,1]>(k)
        s = MatMul(q, kt)
        p = Softmax<axis=-1>(s)
        y = MatMul(p, v)`,
      inputs: { ...qkv, k: 'f32[B,T,2,8]' },
      outputs: { y: 'f32[B,2,S,6]' },
    });
  });

  it('with a key that is stored transposed', async () => {
    await expectReplaced({
      nodes: `
        s = MatMul(q, k)
        p = Softmax<axis=-1>(s)
        y = MatMul(p, v)`,
      inputs: { ...qkv, k: 'f32[B,2,8,T]' },
      outputs: { y: 'f32[B,2,S,6]' },
    });
  });

  it('with a key transposed in three axes', async () => {
    const { model } = await expectReplaced({
      nodes: `
        k3 = Reshape(k, [-1, 7, 8])
        k3t = Transpose<perm=[0,2,1]>(k3)
        kt = Reshape(k3t, [3, 2, 8, 7])
        s = MatMul(q, kt)
        p = Softmax<axis=-1>(s)
        y = MatMul(p, v)`,
      inputs: { ...qkv, k: 'f32[3,2,7,8]' },
      outputs: { y: 'f32[B,2,S,6]' },
    });
    expect(operatorCounts(model).Reshape).toBeUndefined();
  });

  it('with batch and heads folded into one axis', async () => {
    const fold = (name: string) => `
      ${name}4 = Transpose<perm=[0,2,1,3]>(${name})
      shape_${name} = Shape(${name}4)
      rest_${name} = Slice(shape_${name}, [2], [4])
      to_${name} = Concat<axis=0>([-1], rest_${name})
      ${name}3 = Reshape(${name}4, to_${name})`;
    const { model, report } = await expectReplaced({
      nodes: `
        ${fold('q')} ${fold('k')} ${fold('v')}
        kt = Transpose<perm=[0,2,1]>(k3)
        s3 = MatMul(q3, kt)
        sizes_q = Slice(shape_q, [0], [3])
        size_k = Slice(shape_k, [2], [3])
        sizes = Concat<axis=0>(sizes_q, size_k)
        s4 = Reshape(s3, sizes)
        a = Add(s4, m)
        shape_s = Shape(s3)
        x = Reshape(a, shape_s)
        p = Softmax<axis=2>(x)
        y = MatMul(p, v3)`,
      inputs: { q: 'f32[B,S,2,8]', k: 'f32[B,T,2,8]', v: 'f32[B,T,2,6]', m: 'f32[B,1,S,T]' },
      outputs: { y: 'f32[?,S,6]' },
    });
    expect(report.replaced[0]).toMatchObject({ heads: 2, headSize: 8, valueHeadSize: 6 });
    expect(operatorCounts(model).MatMul).toBeUndefined();
  });

  it('without heads', async () => {
    const { report } = await expectReplaced({
      nodes: `
        kt = Transpose<perm=[0,2,1]>(k)
        s = MatMul(q, kt)
        x = Add(s, m)
        p = Softmax<axis=-1>(x)
        y = MatMul(p, v)`,
      inputs: { q: 'f32[B,S,8]', k: 'f32[B,T,8]', v: 'f32[B,T,6]', m: 'f32[B,S,T]' },
      outputs: { y: 'f32[B,S,6]' },
    });
    expect(report.replaced[0]).toMatchObject({ heads: 1, kvHeads: 1 });
  });

  it('with key and value repeated for the query heads', async () => {
    const repeat = (name: string, size: number) => `
      ${name}5 = Unsqueeze(${name}, [2])
      ${name}e = Expand(${name}5, [3, 2, 3, 7, ${size}])
      ${name}r = Reshape(${name}e, [3, 6, 7, ${size}])`;
    const { model, report } = await expectReplaced({
      nodes: `
        ${repeat('k', 8)} ${repeat('v', 6)}
        kt = Transpose<perm=[0,1,3,2]>(kr)
        s = MatMul(q, kt)
        p = Softmax<axis=-1>(s)
        y = MatMul(p, vr)`,
      inputs: { q: 'f32[3,6,S,8]', k: 'f32[3,2,7,8]', v: 'f32[3,2,7,6]' },
      outputs: { y: 'f32[3,6,S,6]' },
    });
    expect(report.replaced[0]).toMatchObject({ heads: 6, kvHeads: 2 });
    expect(operatorCounts(model)).toEqual({ FusedAttention: 1 });
  });

  it('with one head of keys and values that the product broadcasts', async () => {
    const inputs = { q: 'f32[B,2,S,8]', k: 'f32[B,1,T,8]', v: 'f32[B,1,T,6]' };
    const { report } = await expectReplaced(withScores('x = Identity(s)', { inputs }));
    expect(report.replaced[0]).toMatchObject({ heads: 2, kvHeads: 1 });
  });

  it('with a factor on the value', async () => {
    const text = withScores('x = Identity(s)');
    const nodes = text.nodes.replace('y = MatMul(p, v)', 'w = Mul(v, 0.5)\ny = MatMul(p, w)');
    const { report } = await expectReplaced({ ...text, nodes });
    expect(report.replaced[0]?.scale).toBe(1);
  });

  it('with scores and output as Einsum', async () => {
    await expectReplaced({
      nodes: `
        s = Einsum<equation="bqhd, bkhd -> bhqk">(q, k)
        x = Mul(s, 0.3)
        p = Softmax<axis=-1>(x)
        y = Einsum<equation="bhqk, bkhd -> bqhd">(p, v)`,
      inputs: { q: 'f32[B,S,2,8]', k: 'f32[B,T,2,8]', v: 'f32[B,T,2,6]' },
      outputs: { y: 'f32[B,S,2,6]' },
    });
  });

  it('with scores as an Einsum of three axes', async () => {
    await expectReplaced({
      nodes: `
        s = Einsum<equation="bid,bjd->bij">(q, k)
        p = Softmax<axis=-1>(s)
        y = Einsum<equation="bij,bjd->bid">(p, v)`,
      inputs: { q: 'f32[B,S,8]', k: 'f32[B,T,8]', v: 'f32[B,T,6]' },
      outputs: { y: 'f32[B,S,6]' },
    });
  });

  it('from one packed projection, split or gathered', async () => {
    const parts = {
      split: `
        part_q part_k part_v = Split<axis=2>(qkv, [16, 16, 16])
        q4 = Reshape(part_q, [0, 0, 2, 8])
        k4 = Reshape(part_k, [0, 0, 2, 8])
        v4 = Reshape(part_v, [0, 0, 2, 8])
        q = Transpose<perm=[0,2,1,3]>(q4)
        k = Transpose<perm=[0,2,1,3]>(k4)
        v = Transpose<perm=[0,2,1,3]>(v4)`,
      gathered: `
        five = Reshape(qkv, [0, 0, 3, 2, 8])
        first = Transpose<perm=[2,0,3,1,4]>(five)
        q = Gather<axis=0>(first, 0i)
        k = Gather<axis=0>(first, 1i)
        v = Gather<axis=0>(first, 2i)`,
      sliced: `
        five = Reshape(qkv, [0, 0, 2, 24])
        heads = Transpose<perm=[0,2,1,3]>(five)
        q = Slice(heads, [0], [8], [3])
        k = Slice(heads, [8], [16], [3])
        v = Slice(heads, [16], [24], [3])`,
    };
    for (const lines of Object.values(parts)) {
      const { report } = await expectReplaced({
        nodes: `
          qkv = MatMul(h, w)
          ${lines}
          kt = Transpose<perm=[0,1,3,2]>(k)
          s = MatMul(q, kt)
          x = Mul(s, 0.3)
          p = Softmax<axis=-1>(x)
          y = MatMul(p, v)`,
        inputs: { h: 'f32[B,S,10]' },
        outputs: { y: 'f32[B,2,S,8]' },
        initializers: { w: { dims: [10, 48], data: noise(480, 5) } },
      });
      expect(report.replaced[0]).toMatchObject({ heads: 2, headSize: 8, selfAttention: true });
    }
  });

  it('with keys repeated and values not, are left repeated', async () => {
    const { report } = await expectReplaced({
      nodes: `
        k5 = Unsqueeze(k, [2])
        ke = Expand(k5, [3, 2, 3, 7, 8])
        kr = Reshape(ke, [3, 6, 7, 8])
        kt = Transpose<perm=[0,1,3,2]>(kr)
        s = MatMul(q, kt)
        p = Softmax<axis=-1>(s)
        y = MatMul(p, v)`,
      inputs: { q: 'f32[3,6,S,8]', k: 'f32[3,2,7,8]', v: 'f32[3,6,7,6]' },
      outputs: { y: 'f32[3,6,S,6]' },
    });
    expect(report.replaced[0]).toMatchObject({ heads: 6, kvHeads: 6 });
  });
});

describe('an attention is left', () => {
  it('when its probabilities are an output', () => {
    const text = withScores('x = Mul(s, 0.3)', { outputs: { y: 'f32[B,2,S,6]', p: 'f32[B,2,S,T]' } });
    expect(reasonsOf(text)).toEqual(['its probabilities are an output of the model']);
  });

  it('when its probabilities are used a second time', () => {
    const text = withScores('x = Mul(s, 0.3)', { outputs: { y: 'f32[B,2,S,6]', z: 'f32' } });
    const reasons = reasonsOf({ ...text, nodes: `${text.nodes}\nz = ReduceMean(p)` });
    expect(reasons).toEqual(['its probabilities are used a second time']);
  });

  it('when its scores are used a second time', () => {
    const text = withScores('x = Mul(s, 0.3)\nz = ReduceMean(s)', {
      outputs: { y: 'f32[B,2,S,6]', z: 'f32' },
    });
    expect(reasonsOf(text)).toEqual([
      'the outputs of its MatMul are used a second time, by ReduceMean node_z',
    ]);
  });

  it('when a product broadcasts what attention does not', () => {
    const shared = withScores('x = Identity(s)', { inputs: { k: 'f32[1,2,T,8]' } });
    expect(reasonsOf(shared)).toEqual(['its query or its keys are the same for the whole batch']);
    const learned = withScores('x = Identity(s)', { inputs: { q: 'f32[1,2,S,8]' } });
    expect(reasonsOf(learned)).toEqual(['its query or its keys are the same for the whole batch']);
    const uneven = withScores('x = Identity(s)', { inputs: { k: 'f32[B,1,T,8]' } });
    expect(reasonsOf(uneven)).toEqual(['it has 1 heads of keys and 2 of values']);
  });

  it('when it computes in bfloat16', () => {
    const brain = { q: 'bf16[B,2,S,8]', k: 'bf16[B,2,T,8]', v: 'bf16[B,2,T,6]' };
    expect(reasonsOf(withScores('x = Identity(s)', { inputs: brain }))).toEqual([
      'its element type is bfloat16, neither float32 nor float16',
    ]);
  });

  it('when its softmax is not over the keys', () => {
    const text = withScores('x = Identity(s)');
    const reasons = reasonsOf({ ...text, nodes: text.nodes.replace('axis=-1', 'axis=2') });
    expect(reasons).toEqual(['its softmax is over axis 2, not over the keys']);
  });

  it('when its scores are of an unknown form', () => {
    expect(reasonsOf(withScores('x = Relu(s)'))).toEqual([
      'its scores are not a product of query and key (Relu)',
    ]);
  });

  it('but a softmax elsewhere is no attention', () => {
    const nodes = 'h = MatMul(a, w)\ny = Softmax<axis=-1>(h)';
    const text = { nodes, inputs: { a: 'f32[B,8]', w: 'f32[8,4]' }, outputs: { y: 'f32[B,4]' } };
    expect(findAttention(readModel(onnx(text)))).toEqual({ found: [], left: [] });
  });
});

describe('opsets', () => {
  for (const opset of [11, 12, 13, 14, 17, 18, 20, 21, 22, 23]) {
    it(`${opset}`, async () => {
      const text = withScores('a = Mul(s, 0.3)\nx = Add(a, m)', { inputs: { m: 'f32[S,T]' }, opset });
      await expectReplaced({ ...text, nodes: text.nodes.replace('axis=-1', 'axis=3') });
    });
  }

  it('lower than 13, where a softmax is over axis 1 if it does not say', () => {
    const text = withScores('x = Identity(s)', { opset: 12 });
    const reasons = reasonsOf({ ...text, nodes: text.nodes.replace('<axis=-1>', '') });
    expect(reasons).toEqual(['its softmax is over axis 1, not over the keys']);
  });
});
