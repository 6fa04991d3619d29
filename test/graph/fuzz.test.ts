import { MxattnError } from '@mxattn/core';
import {
  convertModel,
  type GraphProto,
  type ModelProto,
  modelInputs,
  readModel,
  type TargetName,
  writeModel,
} from '@mxattn/ort-op';
import { describe, expect, it } from 'vitest';
import { onnx } from './onnx-text.js';
import { zooModel } from './zoo.js';

/** Mutations of each kind: few every day, 10,000 in all with `npm run fuzz`. */
const rounds = process.env.MODE === 'fuzz' ? 5000 : 150;
const timeout = Math.max(60_000, rounds * 200);
/** No mutated model may take longer than this, in milliseconds. */
const patience = 5000;
/** Nor may all of them need more memory than this, in bytes, the test runner included. */
const memory = 1e9;
const targets: readonly TargetName[] = ['fused', 'contrib', 'attention'];

/** Reproducible numbers below a limit. */
function random(seed: number): (limit: number) => number {
  let state = seed;
  return (limit) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * limit);
  };
}

/** A model of the fused operators, with a function and with branches. */
const fusedOperators = onnx({
  nodes: `
    a present = com.microsoft.Attention<num_heads=2, unidirectional=1>(x, w, b, , past)
    m nk nv = com.microsoft.MultiHeadAttention<num_heads=2>(a, a, a, b, padding, , pk, pv)
    g gk gv = com.microsoft.GroupQueryAttention<num_heads=2, kv_num_heads=2, local_window_size=3>(m, m, m, pk, pv, n, t)
    f = local.Scaled<factor=0.5>(pk)
    i = If<then_branch=&branch, else_branch=&branch>(c)
    s = com.microsoft.GroupQueryAttention<num_heads=2, kv_num_heads=2, softcap=5.0>(g, g, g, pk, pv, n, t, , , , , b)
    y = Attention<q_num_heads=2, kv_num_heads=2, is_causal=1>(s, s, s)`,
  inputs: {
    x: 'f32[2,S,16]',
    past: 'f32[2,2,2,P,8]',
    padding: 'i32[2,S]',
    pk: 'f32[2,2,P,8]',
    pv: 'f32[2,2,P,8]',
    n: 'i32[2]',
    t: 'i32[]',
    c: 'bool[]',
  },
  outputs: { y: 'f32[2,S,16]', f: 'f32[2,2,P,8]', i: 'f32[2,2,P,8]', gk: 'f32[2,2,?,8]' },
  initializers: {
    w: { dims: [16, 48], data: new Float32Array(768) },
    b: { dims: [48], data: new Float32Array(48) },
  },
  graphs: {
    branch: {
      nodes: 'kt = Transpose<perm=[0,1,3,2]>(pk)\ns = MatMul(pv, kt)\np = Softmax(s)\ni = MatMul(p, pv)',
      outputs: { i: 'f32[2,2,P,8]' },
    },
  },
  functions: [
    {
      name: 'Scaled',
      inputs: ['q'],
      outputs: ['o'],
      attributes: ['factor'],
      nodes: `
        scale = Constant<value_float=@factor>()
        kt = Transpose<perm=[0,1,3,2]>(q)
        s = MatMul(q, kt)
        scaled = Mul(s, scale)
        p = Softmax(scaled)
        o = MatMul(p, q)`,
    },
  ],
  opset: 23,
});

/** A model of the zoo without its weights: all structure. */
function skeleton(name: string): Uint8Array {
  const model = zooModel(name);
  for (const tensor of model.graph?.initializer ?? []) {
    if (tensor.rawData.byteLength > 256) tensor.rawData = new Uint8Array();
  }
  return writeModel(model);
}

const skeletons = [
  'bart.sdpa.ts17',
  'llama.eager.ts17',
  'gemma2.eager.ts17',
  'deberta_v2.eager.ts17',
  'bert.sdpa.dynamo23',
];
const seeds = [...skeletons.map(skeleton), fusedOperators];

/** Reads, inspects and converts; anything but a result or a plain error is a failure. */
function survive(round: number, open: () => ModelProto): 'converted' | 'refused' {
  const start = performance.now();
  try {
    const model = open();
    modelInputs(model);
    const target = targets[round % targets.length]!;
    const { model: converted } = convertModel(model, { target, crossAttention: true });
    readModel(writeModel(converted));
    return 'converted';
  } catch (error) {
    if (error instanceof MxattnError && /\w+ \w+/.test(error.message)) return 'refused';
    throw error;
  } finally {
    expect(performance.now() - start).toBeLessThan(patience);
  }
}

describe('mutated models', () => {
  it('start as models whose every attention is replaced', () => {
    const reports = seeds.map((seed) => convertModel(seed, { crossAttention: true }).report);
    expect(reports.map(({ replaced }) => replaced.length)).toEqual([6, 2, 2, 2, 2, 8]);
    expect(reports.flatMap(({ left }) => left)).toEqual([]);
  });

  it('with bytes changed, inserted or cut off are converted or refused', { timeout }, () => {
    const counts = { converted: 0, refused: 0 };
    for (let round = 0; round < rounds; round++) {
      const next = random(round);
      const bytes = Uint8Array.from(seeds[round % seeds.length]!);
      for (let change = next(8); change >= 0; change--) bytes[next(bytes.length)] = next(256);
      const cut = next(4) === 0 ? bytes.subarray(0, next(bytes.length)) : bytes;
      counts[survive(round, () => readModel(cut))]++;
    }
    expect(counts.converted).toBeGreaterThan(rounds / 20);
    expect(counts.refused).toBeGreaterThan(rounds / 20);
  });

  it('with their graph changed are converted, or refused for what makes them invalid', { timeout }, () => {
    const counts = { converted: 0, refused: 0 };
    for (let round = 0; round < rounds; round++) {
      const next = random(round + 1_000_000);
      const model = readModel(seeds[round % seeds.length]!);
      for (let change = next(6); change >= 0; change--) mutate(model.graph!, next);
      counts[survive(round, () => model)]++;
    }
    expect(counts.converted).toBeGreaterThan(rounds / 4);
    expect(counts.refused).toBeGreaterThan(rounds / 20);
  });

  it('are read and converted in little memory', () => {
    expect(process.resourceUsage().maxRSS * 1024).toBeLessThan(memory);
  });
});

/** One change to a graph, valid or not. */
function mutate(graph: GraphProto, next: (limit: number) => number): void {
  const { node } = graph;
  const pick = () => node[next(node.length)]!;
  const value = () => pick().output[0] ?? '';
  const changed = pick();
  const changes = [
    () => node.splice(next(node.length), 1),
    () => node.splice(next(node.length), 0, changed),
    () => node.reverse(),
    () => {
      changed.input[next(changed.input.length + 1)] = value();
    },
    () => changed.input.pop(),
    () => {
      changed.output[0] = value();
    },
    () => {
      changed.input = [...changed.output];
    },
    () => {
      changed.opType = pick().opType;
    },
    () => {
      for (const attribute of changed.attribute)
        attribute.ints = attribute.ints.map((each) => each + BigInt(next(9) - 4));
    },
    () => {
      for (const attribute of changed.attribute) attribute.i = BigInt(next(2 ** 31)) - 2n ** 30n;
    },
    () => {
      for (const attribute of changed.attribute)
        if (attribute.t) attribute.t.dims = [BigInt(next(2 ** 31)), -3n];
    },
    () => {
      for (const attribute of changed.attribute)
        if (attribute.t) attribute.t.rawData = new Uint8Array(next(20));
    },
    () => changed.attribute.pop(),
    () => graph.initializer.splice(next(graph.initializer.length), 1),
    () => graph.output.push(graph.input[0]!),
  ];
  changes[next(changes.length)]!();
}
