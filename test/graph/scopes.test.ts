import { findAttention, readModel } from '@mxattn/ort-op';
import { describe, expect, it } from 'vitest';
import { onnx } from './onnx-text.js';
import { expectReplaced } from './replacement.js';

const attention = (mask: string) => `
  kt = Transpose<perm=[0,1,3,2]>(k)
  s = MatMul(q, kt)
  x = Mul(s, 0.3)
  ${mask}
  p = Softmax<axis=-1>(a)
  y = MatMul(p, v)`;

const inputs = { q: 'f32[B,2,S,8]', k: 'f32[B,2,T,8]', v: 'f32[B,2,T,6]', m: 'f32[S,T]' };
const outputs = { y: 'f32[B,2,S,6]' };

describe('attention inside', () => {
  it('both branches of an If', async () => {
    const text = {
      nodes: 'y = If<then_branch=&masked, else_branch=&plain>(c)',
      inputs: { ...inputs, c: 'bool[]' },
      outputs,
      graphs: {
        masked: { nodes: attention('a = Add(x, m)'), outputs },
        plain: { nodes: attention('a = Identity(x)'), outputs },
      },
    };
    const { model, report } = await expectReplaced(text, { count: 2 });
    expect(report.replaced.map((each) => each.maskKind)).toEqual(['additive', 'none']);
    const branches = model.graph?.node[0]?.attribute.map((each) => each.g?.node.map((node) => node.opType));
    expect(branches).toEqual([['FusedAttention'], ['FusedAttention']]);
    const fused = model.graph?.node[0]?.attribute[1]?.g?.node[0];
    expect(fused?.input.slice(3)).toEqual(['mxattn.no_bias', 'mxattn.precision']);
  });

  it('the body of a Loop', async () => {
    const body = { y_in: 'f32[B,2,S,6]' };
    await expectReplaced({
      nodes: `
        zero = Mul(v0, 0.0)
        y = Loop<body=&body>(2i, , zero)`,
      inputs: { ...inputs, v0: 'f32[B,2,S,6]' },
      outputs,
      graphs: {
        body: {
          nodes: `
            ${attention('a = Add(x, m)').replace('y =', 'y_step =')}
            y_out = Add(y_in, y_step)
            more_out = Identity(more_in)`,
          inputs: { iteration: 'i64[]', more_in: 'bool[]', ...body },
          outputs: { more_out: 'bool[]', y_out: 'f32[B,2,S,6]' },
        },
      },
    });
  });

  it('a function of the model', async () => {
    const text = {
      nodes: `
        a1 = local.Outer<factor=0.3>(q, k, v)
        y = local.Outer<factor=0.1>(a1, k, v)`,
      inputs: { ...inputs, v: 'f32[B,2,T,8]' },
      outputs: { y: 'f32[B,2,S,8]' },
      functions: [
        {
          name: 'Inner',
          inputs: ['q', 'k', 'v'],
          outputs: ['y'],
          attributes: ['factor'],
          nodes: attention('a = Mul(x, f)').replace('kt =', 'f = Constant<value_float=@factor>()\nkt ='),
        },
        {
          name: 'Outer',
          inputs: ['a', 'b', 'c'],
          outputs: ['d'],
          attributes: ['factor'],
          nodes: 'd = local.Inner<factor=@factor>(a, b, c)',
        },
        { name: 'Unrelated', inputs: ['a'], outputs: ['b'], nodes: 'b = Relu(a)' },
      ],
    };
    const { model, report } = await expectReplaced(text, { count: 2 });
    expect(report.replaced.map((each) => each.scale)).toEqual([
      expect.closeTo(0.09, 6),
      expect.closeTo(0.03, 6),
    ]);
    expect(model.functions.map((each) => each.name)).toEqual(['Unrelated', 'FusedAttention']);
    expect(findAttention(readModel(onnx(text))).found).toHaveLength(2);
  });

  it('a model of IR version 3, whose initializers are inputs', async () => {
    const text = {
      nodes: `
        kt = Transpose<perm=[0,1,3,2]>(k)
        s = MatMul(q, kt)
        a = Mul(s, factor)
        p = Softmax<axis=3>(a)
        y = MatMul(p, v)`,
      inputs,
      outputs,
      irVersion: 3,
      opset: 11,
      initializers: { factor: { dims: [], data: Float32Array.of(0.3) } },
    };
    const withInput = { ...text, inputs: { ...inputs, factor: 'f32[]' } };
    const { report } = await expectReplaced(withInput);
    expect(report.replaced[0]?.scale).toBeCloseTo(0.3, 6);
  });
});

describe('nodes in another order than they compute in', () => {
  it('are sorted', async () => {
    const text = { nodes: attention('a = Add(x, m)'), inputs, outputs };
    await expectReplaced(
      { ...text, nodes: text.nodes.split('\n').reverse().join('\n') },
      { reference: text },
    );
  });

  it('are refused where one depends on itself', () => {
    const nodes = `${attention('a = Add(x, m)').replace('MatMul(q, kt)', 'MatMul(q, loop)')}\nloop = Add(y, kt)`;
    expect(() => findAttention(readModel(onnx({ nodes, inputs, outputs })))).toThrow(/depends on itself/);
  });

  it('are refused where two compute one value', () => {
    const nodes = `${attention('a = Add(x, m)')}\ny = Relu(a)`;
    expect(() => findAttention(readModel(onnx({ nodes, inputs, outputs })))).toThrow(/two nodes compute y/);
  });
});
