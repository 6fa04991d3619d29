import { type PrecisionName, recipes } from '@mxattn/core';
import { terminalProgress } from '@mxattn/progress';
import { feed, normal, operatorRunner } from './cpu-operator.js';
import { interleaved } from './interleave.js';
import type { Row } from './row.js';

const ROUNDS = 15;

interface Shape {
  readonly heads: number;
  readonly length: number;
  readonly size: number;
  readonly causal: boolean;
}

const SHAPES: readonly Shape[] = [
  { heads: 8, length: 4096, size: 128, causal: false },
  { heads: 8, length: 4096, size: 64, causal: false },
  { heads: 8, length: 1024, size: 64, causal: false },
  { heads: 8, length: 4096, size: 128, causal: true },
  { heads: 8, length: 4096, size: 64, causal: true },
];

const PRECISIONS: readonly PrecisionName[] = ['mxfp4', 'mxfp6', 'f32'];

/**
 * FusedAttention against ONNX Runtime's fastest operators in f32: MultiHeadAttention, and GroupQueryAttention, which is
 * causal. Each is the operator of a session.
 */
export async function prefillRows(
  threads: number,
  peaks: { readonly float32: number; readonly int8: number },
): Promise<Row[]> {
  const rows: Row[] = [];
  for (const shape of SHAPES) {
    const { heads, length, size, causal } = shape;
    const label = `1,${heads},${heads},${length},${length},${size}`;
    const peer = await (causal ? groupQueryAttention(shape, threads) : multiHeadAttention(shape, threads));
    for (const precision of PRECISIONS) {
      const name = `${causal ? 'causal' : 'prefill'}, ${precision}`;
      const ours = await fusedAttention(shape, precision, threads);
      const times = await terminalProgress(`${name} (${label})`, ROUNDS, (step) =>
        interleaved(ours, peer, ROUNDS, step),
      );
      const operations = (4 * heads * length ** 2 * size) / (causal ? 2 : 1);
      const peak = precision === 'f32' ? peaks.float32 : peaks.int8;
      rows.push({
        name,
        shape: label,
        ...times,
        peerName: `${causal ? 'GroupQueryAttention' : 'MultiHeadAttention'} f32, ONNX Runtime`,
        ratio: times.peer / times.ours,
        percentOfPeak: (100 * operations) / (times.ours * 1e6) / peak,
      });
    }
  }
  return rows;
}

function fusedAttention({ heads, length, size, causal }: Shape, precision: PrecisionName, threads: number) {
  const dims = [1, heads, length, size];
  return operatorRunner(
    {
      domain: 'ai.mxattn',
      operator: 'FusedAttention',
      attributes: {
        scale: { float: 1 / Math.sqrt(size) },
        layer: { int: 0 },
        causal: { int: Number(causal) },
      },
      feeds: [
        ...['query', 'key', 'value'].map((name) => feed(name, dims, normal(heads * length * size))),
        feed('bias', [1], new Float32Array(1)),
        feed('precision', [1], Int32Array.of(recipes[precision].id)),
      ],
    },
    threads,
  );
}

function multiHeadAttention({ heads, length, size }: Shape, threads: number) {
  const dims = [1, length, heads * size];
  return operatorRunner(
    {
      domain: 'com.microsoft',
      operator: 'MultiHeadAttention',
      attributes: { num_heads: { int: heads } },
      feeds: ['query', 'key', 'value'].map((name) => feed(name, dims, normal(heads * length * size))),
    },
    threads,
  );
}

function groupQueryAttention({ heads, length, size }: Shape, threads: number) {
  const dims = [1, length, heads * size];
  return operatorRunner(
    {
      domain: 'com.microsoft',
      operator: 'GroupQueryAttention',
      attributes: { num_heads: { int: heads }, kv_num_heads: { int: heads } },
      inputs: ['query', 'key', 'value', '', '', 'last', 'total'],
      feeds: [
        ...['query', 'key', 'value'].map((name) => feed(name, dims, normal(heads * length * size))),
        feed('last', [1], Int32Array.of(length - 1)),
        feed('total', [1], Int32Array.of(length)),
      ],
      moreOutputs: ['present_key', 'present_value'],
    },
    threads,
  );
}
