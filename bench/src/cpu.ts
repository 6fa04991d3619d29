import { cpus } from 'node:os';
import { type PrecisionName, recipes } from '@mxattn/core';
import { measurePeaks, type NativeFeed, openNativeSession } from '@mxattn/ort-op';
import { terminalProgress } from '@mxattn/progress';
import { interleaved } from './interleave.js';
import { graphModel, type Node } from './operator-model.js';
import { Random } from './random.js';
import type { BenchmarkResult, Row } from './row.js';

const THREADS = 2;
const ROUNDS = 15;

interface Shape {
  readonly heads: number;
  readonly length: number;
  readonly size: number;
}

const SHAPES: readonly Shape[] = [
  { heads: 8, length: 4096, size: 128 },
  { heads: 8, length: 4096, size: 64 },
  { heads: 8, length: 1024, size: 64 },
];

const PRECISIONS: readonly PrecisionName[] = ['mxfp4', 'mxfp6', 'f32'];

/**
 * The CPU kernel against ONNX Runtime's MultiHeadAttention in f32, both as the operator of a session on the same runtime,
 * both with two threads.
 */
export async function cpuBenchmark(): Promise<BenchmarkResult> {
  const peaks = await measurePeaks(THREADS);
  const rows: Row[] = [];
  for (const shape of SHAPES) {
    for (const precision of PRECISIONS) {
      const name = `prefill, ${precision}`;
      const label = `1,${shape.heads},${shape.heads},${shape.length},${shape.length},${shape.size}`;
      const ours = await fusedAttention(shape, precision);
      const peer = await multiHeadAttention(shape);
      const times = await terminalProgress(`${name} (${label})`, ROUNDS, (step) =>
        interleaved(ours, peer, ROUNDS, step),
      );
      const operations = 4 * shape.heads * shape.length ** 2 * shape.size;
      const peak = precision === 'f32' ? peaks.float32 : peaks.int8;
      rows.push({
        name,
        shape: label,
        ...times,
        peerName: 'MultiHeadAttention f32, ONNX Runtime',
        ratio: times.peer / times.ours,
        percentOfPeak: (100 * operations) / (times.ours * 1e6) / peak,
      });
    }
  }
  const machine = {
    cpu: cpus()[0]?.model ?? '',
    threads: THREADS,
    'float32 GFLOP/s': Math.round(peaks.float32),
    'int8 GOP/s': Math.round(peaks.int8),
  };
  return { machine, rows };
}

const random = new Random(1);

function normal(count: number): Float32Array {
  return Float32Array.from({ length: count }, () => random.normal());
}

async function fusedAttention({ heads, length, size }: Shape, precision: PrecisionName) {
  const dims = [1, heads, length, size];
  const count = heads * length * size;
  return runner('ai.mxattn', 'FusedAttention', { scale: { float: 1 / Math.sqrt(size) }, layer: { int: 0 } }, [
    ...['query', 'key', 'value'].map((name) => ({ name, type: 1, dims, data: bytes(normal(count)) })),
    { name: 'bias', type: 1, dims: [1], data: bytes(new Float32Array(1)) },
    { name: 'precision', type: 6, dims: [1], data: bytes(Int32Array.of(recipes[precision].id)) },
  ]);
}

async function multiHeadAttention({ heads, length, size }: Shape) {
  const dims = [1, length, heads * size];
  const feeds = ['query', 'key', 'value'].map((name) => ({
    name,
    type: 1,
    dims,
    data: bytes(normal(heads * length * size)),
  }));
  return runner('com.microsoft', 'MultiHeadAttention', { num_heads: { int: heads } }, feeds);
}

/**
 * Runs one operator with the same feeds again and again. Only the largest element of its output leaves the session, as in
 * a model, where the output stays inside: handing out fresh megabytes costs page faults that have nothing to do with it.
 */
async function runner(
  domain: string,
  operator: string,
  attributes: Node['attributes'],
  feeds: readonly NativeFeed[],
) {
  const session = await openNativeSession(
    graphModel({
      nodes: [
        { domain, operator, inputs: feeds.map(({ name }) => name), outputs: ['output'], attributes },
        {
          domain: '',
          operator: 'ReduceMax',
          inputs: ['output'],
          outputs: ['largest'],
          attributes: { keepdims: { int: 0 } },
        },
      ],
      inputs: feeds,
      outputs: [{ name: 'largest', dims: [] }],
    }),
    { intraOpNumThreads: THREADS },
  );
  return () => session.run(feeds, ['largest']);
}

function bytes({ buffer, byteOffset, byteLength }: ArrayBufferView): Uint8Array {
  return new Uint8Array(buffer, byteOffset, byteLength);
}
