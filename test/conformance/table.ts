import {
  type AttentionSpec,
  type AttentionSpecInit,
  type AttentionTensors,
  attentionSpec,
} from '@mxattn/core';
import { normal } from './random.js';

/** One row of the conformance table: an attention that every backend must get right, or refuse with a reason. */
export interface Row {
  readonly name: string;
  readonly spec: AttentionSpec;
  readonly tensors: AttentionTensors;
  /** Scores reach tens of nats, so that their f32 rounding shows in the weights. */
  readonly largeScores?: boolean;
}

type Change = (tensors: AttentionTensors, spec: AttentionSpec) => Partial<AttentionTensors>;

let seed = 1;

function row(name: string, init: AttentionSpecInit, change: Change = () => ({}), largeScores = false): Row {
  const spec = attentionSpec(init);
  const { batch, heads, kvHeads, queryLength, keyLength, headSize, valueHeadSize } = spec;
  const tensors: AttentionTensors = {
    query: normal(batch * heads * queryLength * headSize, seed++),
    key: normal(batch * kvHeads * keyLength * headSize, seed++),
    value: normal(batch * kvHeads * keyLength * valueHeadSize, seed++),
  };
  return { name, spec, tensors: { ...tensors, ...change(tensors, spec) }, largeScores };
}

/** Few rows and many keys, which kernels may spread over threads by keys. */
const few = { heads: 3, kvHeads: 1, queryLength: 2, keyLength: 2200, headSize: 64, causal: true };

const base = { heads: 2, queryLength: 70, keyLength: 150, headSize: 64 };

/** A bias of these dims, with values by index. */
function bias(dims: readonly number[], value: (index: number) => number): Partial<AttentionTensors> {
  const length = dims.reduce((product, size) => product * size);
  return { bias: { dims, data: Float32Array.from({ length }, (_, i) => value(i)) } };
}

function mask(dims: readonly number[], keep: (index: number) => boolean): Partial<AttentionTensors> {
  const length = dims.reduce((product, size) => product * size);
  return { mask: { dims, data: Uint8Array.from({ length }, (_, i) => Number(keep(i))) } };
}

/** Adds to keys [from, to) the direction that every query points to, `height` nats above the others. */
function hotKeys(from: number, to: number, height: number): Change {
  return ({ query, key }, spec) => {
    const size = spec.headSize;
    const q = query.slice();
    const k = key.slice();
    for (let i = 0; i < q.length; i += size) q[i] = q[i]! + Math.sqrt(size);
    for (let j = from; j < to; j++) k[j * size] = k[j * size]! + height;
    return { query: q, key: k };
  };
}

/** Every 64 keys the scores of all queries rise by `step` nats. */
const maxStair: Change = ({ query, key }, spec) => {
  const size = spec.headSize;
  const q = query.slice();
  const k = key.slice();
  for (let i = 0; i < q.length; i += size) q[i] = Math.sqrt(size);
  for (let j = 0; j * size < k.length; j++) k[j * size] = 8 * Math.floor((j % spec.keyLength) / 64);
  return { query: q, key: k };
};

export const table: readonly Row[] = [
  ...[1, 127, 128, 129, 257].map((length) =>
    row(`${length} queries and keys`, { ...base, queryLength: length, keyLength: length }),
  ),
  ...[32, 40, 72, 80, 96, 128, 160, 192, 256, 320, 384, 512, 576].map((headSize) =>
    row(`head size ${headSize}`, { ...base, heads: 1, headSize }),
  ),
  row('value head size 128 of 192', { ...base, headSize: 192, valueHeadSize: 128 }),
  row('head size 8', { ...base, headSize: 8 }),
  row('value head size 24', { ...base, valueHeadSize: 24 }),
  row('two sequences', { ...base, batch: 2 }),
  row('layout BSHD', { ...base, batch: 2, layout: 'BSHD' }),
  row('grouped query heads', { ...base, heads: 6, kvHeads: 2 }),
  row('one key/value head', { ...base, heads: 4, kvHeads: 1 }),
  row('decode: one query, grouped heads', {
    heads: 8,
    kvHeads: 2,
    queryLength: 1,
    keyLength: 500,
    headSize: 128,
  }),
  row('decode: many keys, one key/value head', { ...few, queryLength: 1 }),
  row('few queries, many keys, all of it', { ...few, softcap: 20, window: { left: 1500, right: 0 } }, () => ({
    sinks: Float32Array.of(1, -1, 2),
    ...bias([2200], (i) => (i % 7 ? Math.sin(i) : -Infinity)),
  })),
  row('few queries, late key', few, hotKeys(2100, 2101, 30), true),
  row('scale 1', { ...base, scale: 1 }, undefined, true),
  row('causal, bottom-right', { ...base, causal: true }),
  row('causal, more queries than keys', { ...base, queryLength: 150, keyLength: 70, causal: true }),
  row('window of 17 keys', { ...base, causal: true, window: { left: 16, right: 0 } }),
  row('window to both sides', { ...base, window: { left: 9, right: 5 } }),
  row('soft cap', { ...base, softcap: 2, scale: 1 }, undefined, true),
  row(
    'soft cap before a bias beyond it',
    { ...base, softcap: 2, scale: 1 },
    () => bias([70, 150], (i) => (i % 3 ? 0 : -10000) + 5 * Math.sin(i)),
    true,
  ),
  row('bias per head', base, () => bias([1, 2, 70, 150], (i) => Math.sin(i) * 2)),
  row('bias shared by heads', base, () => bias([1, 1, 70, 150], (i) => Math.cos(i) * 2)),
  row('bias per key', base, () => bias([150], (i) => Math.sin(i))),
  row('bias of three axes', base, () => bias([2, 1, 150], (i) => Math.sin(i))),
  row('the same bias for every key', base, () => bias([1, 1, 70, 1], () => -65504)),
  row('the same bias for every key, beside a sink', base, () => ({
    sinks: Float32Array.of(2, -1),
    ...bias([1, 2, 1, 1], (i) => 3 * i - 1),
  })),
  row('bias by distance (ALiBi)', base, () =>
    bias([1, 2, 70, 150], (i) => {
      const [slope, query, key] = [i < 70 * 150 ? 1 / 2 : 1 / 16, Math.floor(i / 150) % 70, i % 150];
      return -slope * Math.abs(query + 80 - key);
    }),
  ),
  row('bias per head of grouped heads', { ...base, heads: 4, kvHeads: 2 }, () =>
    bias([1, 4, 70, 150], (i) => Math.sin(i) * 2),
  ),
  row('bias with minus infinity', base, () => bias([70, 150], (i) => (i % 3 ? 0 : -Infinity))),
  row('bias with the lowest float', base, () => bias([70, 150], (i) => (i % 3 ? 0 : -3.4028234663852886e38))),
  ...[-Infinity, -3.4028234663852886e38, -1e4].map((masked) =>
    row(`causality as a bias of 0 and ${masked}`, { ...base, queryLength: 230, keyLength: 300 }, () =>
      bias([230, 300], (i) => (i % 300 <= Math.floor(i / 300) + 70 ? 0 : masked)),
    ),
  ),
  row(
    'a causal bias that leaves some rows only very low keys',
    { ...base, keyLength: 200, causal: true },
    () =>
      bias([70, 200], (i) =>
        Math.floor(i / 200) % 3 === 0 && i % 200 < 190
          ? -3.4028234663852886e38
          : i % 200 < 64
            ? -Infinity
            : 0,
      ),
  ),
  row(
    'whole tiles of keys masked, and all of some heads',
    { ...base, heads: 4, kvHeads: 2, keyLength: 300 },
    () => bias([1, 4, 1, 300], (i) => (i < 300 ? -Infinity : i % 300 < 130 || i % 300 > 260 ? -Infinity : 0)),
  ),
  row('bias of -65504, the lowest float16', base, () => bias([150], (i) => (i < 100 ? 0 : -65504))),
  row('bias of -10000', base, () => bias([150], (i) => (i < 100 ? 0 : -10000))),
  row('first keys masked (left padding)', base, () => mask([1, 1, 1, 150], (i) => i >= 90)),
  row('last keys masked (right padding)', { ...base, batch: 2 }, () =>
    mask([2, 1, 1, 150], (i) => i % 150 < 61),
  ),
  row('boolean mask and causal', { ...base, causal: true }, () => mask([70, 150], (i) => i % 5 !== 0)),
  row('mask and bias', base, () => ({
    ...mask([150], (i) => i % 2 === 0),
    ...bias([70, 150], (i) => Math.sin(i)),
  })),
  row('some rows fully masked', base, () => mask([70, 150], (i) => Math.floor(i / 150) % 4 !== 0)),
  row('sinks', base, () => ({ sinks: Float32Array.of(2, -1) })),
  row('a sink and fully masked rows', base, () => ({
    sinks: Float32Array.of(2, -1),
    ...mask([70, 150], (i) => Math.floor(i / 150) % 4 !== 0),
  })),
  row('first keys 20 nats above the rest', base, hotKeys(0, 4, 20), true),
  row('last keys 40 nats above the rest', { ...base, heads: 1 }, hotKeys(140, 150, 40), true),
  row('maximum rises with every tile', { ...base, heads: 1, keyLength: 400 }, maxStair, true),
  row('all queries and keys 23, head size 128', { ...base, headSize: 128 }, ({ query, key }) => ({
    query: query.map(() => 23),
    key: key.map(() => 23),
  })),
  row(
    'one key channel 100 times the others',
    base,
    ({ key }) => ({ key: key.map((k, i) => (i % 64 === 5 ? k * 100 : k)) }),
    true,
  ),
  row('one value token 1000 times the others', base, ({ value }) => ({
    value: value.map((v, i) => (Math.floor(i / 64) % 150 === 3 ? v * 1000 : v)),
  })),
  row('tiny values', base, ({ value }) => ({ value: value.map((v) => v * 1e-30) })),
];
