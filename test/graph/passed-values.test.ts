import { readModel } from '@mxattn/ort-op';
import { describe, expect, it } from 'vitest';
import { passedValues } from '../../packages/ort-op/src/model/passed-values.js';
import { type BodyText, onnx } from './onnx-text.js';

/** What is passed in a graph with the inputs a, b (floats), c and d (bools) and the output y. */
function passed(nodes: string, bodies: Readonly<Record<string, BodyText>> = {}) {
  const { graph } = readModel(
    onnx({
      nodes,
      inputs: { a: 'f32[2]', b: 'f32[2]', c: 'bool[]', d: 'bool[]' },
      outputs: { y: 'f32[2]' },
      initializers: { w: { dims: [2], data: Float32Array.of(1, 2) } },
      graphs: bodies,
    }),
  );
  return passedValues(graph!).get('y');
}

const branches = (first: string, second: string) => ({
  one: { nodes: first, outputs: { one_y: 'f32[2]' } },
  two: { nodes: second, outputs: { two_y: 'f32[2]' } },
});
const choose = 'y = If<then_branch=&one, else_branch=&two>(c)';

describe('a value is passed', () => {
  it('by Identity', () => {
    expect(passed('y = Identity(a)')).toEqual([{ input: 'a' }]);
    expect(passed('e = Identity(b)\n f = Identity(e)\n y = Identity(f)')).toEqual([{ input: 'b' }]);
  });

  it('by one branch of If or by both', () => {
    const a = { input: 'a', when: { input: 'c', value: true } };
    const b = { input: 'b', when: { input: 'c', value: false } };
    const passA = 'one_y = Identity(a)';
    expect(passed(choose, branches(passA, 'two_y = Neg(b)'))).toEqual([a]);
    expect(passed(choose, branches('one_y = Neg(a)', 'two_y = Identity(b)'))).toEqual([b]);
    expect(passed(choose, branches(passA, 'e = Identity(b)\n two_y = Identity(e)'))).toEqual([a, b]);
  });

  it('with Identity around the If and at its condition', () => {
    const nodes = `
      e = Identity(a)
      f = Identity(d)
      g = If<then_branch=&one, else_branch=&two>(f)
      y = Identity(g)`;
    const expected = [{ input: 'a', when: { input: 'd', value: true } }];
    expect(passed(nodes, branches('one_y = Identity(e)', 'two_y = Neg(b)'))).toEqual(expected);
  });

  it('of several outputs by its own', () => {
    const nodes = 'x y = If<then_branch=&one, else_branch=&two>(c)';
    const body = (first: string, second: string): BodyText => ({
      nodes: `${first} = Identity(a)\n ${second} = Identity(b)`,
      outputs: { [first]: 'f32[2]', [second]: 'f32[2]' },
    });
    expect(passed(nodes, { one: body('p', 'q'), two: body('r', 's') })).toEqual([
      { input: 'b', when: { input: 'c', value: true } },
      { input: 'b', when: { input: 'c', value: false } },
    ]);
  });
});

describe('a value is not passed', () => {
  it.each([
    ['that is computed', 'y = Neg(a)', {}],
    ['that is an initializer', 'y = Identity(w)', {}],
    ['by an operator of another domain', 'y = local.Identity(a)', {}],
    [
      'where the condition is computed',
      'e = Not(c)\n y = If<then_branch=&one, else_branch=&two>(e)',
      branches('one_y = Identity(a)', 'two_y = Identity(b)'),
    ],
    [
      'that a branch computes under the name of an input',
      choose,
      branches('a = Neg(b)\n one_y = Identity(a)', 'two_y = Neg(b)'),
    ],
    [
      'that is computed around the branch',
      `e = Neg(a)\n ${choose}`,
      branches('one_y = Identity(e)', 'two_y = Neg(b)'),
    ],
  ])('%s', (_, nodes, bodies) => {
    expect(passed(nodes, bodies)).toBeUndefined();
  });
});
