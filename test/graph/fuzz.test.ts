import { MxattnError } from '@mxattn/core';
import {
  convertModel,
  type GraphProto,
  type ModelProto,
  modelInputs,
  readModel,
  writeModel,
} from '@mxattn/ort-op';
import { describe, expect, it } from 'vitest';
import { zooModel } from './zoo.js';

/** Mutations of each kind; set MXATTN_FUZZ for a longer run. */
const rounds = Number(process.env.MXATTN_FUZZ ?? 150);
/** No mutated model may take longer than this, in milliseconds. */
const patience = 5000;

/** Reproducible numbers below a limit. */
function random(seed: number): (limit: number) => number {
  let state = seed;
  return (limit) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * limit);
  };
}

/** Small models without their weights: all structure. */
const seeds = ['bart.sdpa.ts17', 'llama.eager.ts17', 'deberta_v2.eager.ts17', 'bert.sdpa.dynamo23'].map(
  (name) => {
    const model = zooModel(name);
    for (const tensor of model.graph?.initializer ?? []) {
      if (tensor.rawData.byteLength > 256) tensor.rawData = new Uint8Array();
    }
    return writeModel(model);
  },
);

/** Reads, inspects and converts; anything but a result or a plain error is a failure. */
function survive(open: () => ModelProto): 'converted' | 'refused' {
  const start = performance.now();
  try {
    const model = open();
    modelInputs(model);
    const { model: converted } = convertModel(model, { crossAttention: true });
    readModel(writeModel(converted));
    return 'converted';
  } catch (error) {
    if (error instanceof MxattnError) return 'refused';
    throw error;
  } finally {
    expect(performance.now() - start).toBeLessThan(patience);
  }
}

describe('mutated models', () => {
  it('with bytes changed, inserted or cut off are converted or refused', () => {
    const counts = { converted: 0, refused: 0 };
    for (let round = 0; round < rounds; round++) {
      const next = random(round);
      const bytes = Uint8Array.from(seeds[round % seeds.length]!);
      for (let change = next(8); change >= 0; change--) bytes[next(bytes.length)] = next(256);
      const cut = next(4) === 0 ? bytes.subarray(0, next(bytes.length)) : bytes;
      counts[survive(() => readModel(cut))]++;
    }
    expect(counts.converted).toBeGreaterThan(rounds / 20);
    expect(counts.refused).toBeGreaterThan(rounds / 20);
  });

  it('with their graph changed are converted, or refused for what makes them invalid', () => {
    const counts = { converted: 0, refused: 0 };
    for (let round = 0; round < rounds; round++) {
      const next = random(round + 1_000_000);
      const model = readModel(seeds[round % seeds.length]!);
      for (let change = next(6); change >= 0; change--) mutate(model.graph!, next);
      counts[survive(() => model)]++;
    }
    expect(counts.converted).toBeGreaterThan(rounds / 4);
    expect(counts.refused).toBeGreaterThan(rounds / 20);
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
