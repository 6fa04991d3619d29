import { attention, attentionSpec, type PrecisionName } from '@mxattn/core';
import * as ort from 'onnxruntime-web';
import { interleaved } from './interleave.js';
import { graphModel, operatorModel } from './operator-model.js';
import { Random } from './random.js';
import type { Row } from './row.js';

const ROUNDS = 15;
const HEADS = 8;
const LENGTH = 1024;
const HEAD_SIZES = [64, 128];
const PRECISIONS: readonly PrecisionName[] = ['mxfp6', 'mxfp4', 'f32'];

interface Peer {
  readonly name: string;
  readonly run: () => Promise<unknown>;
}

/**
 * Times the WebAssembly kernel, from plain arrays to a plain array, beside the WebAssembly provider of ONNX Runtime in
 * f32, both with one thread, in Node.js or a browser. The peer is the faster of attention's two forms.
 */
export async function measureWasm(engine: string): Promise<Row[]> {
  ort.env.wasm.numThreads = 1;
  const rows: Row[] = [];
  for (const size of HEAD_SIZES) {
    const peer = await fasterOf(await multiHeadAttention(size), await matrixProducts(size));
    const shape = `1,${HEADS},${HEADS},${LENGTH},${LENGTH},${size}`;
    for (const precision of PRECISIONS) {
      const times = await interleaved(ours(size, precision), peer.run, ROUNDS, () => {});
      const name = `${engine}, ${precision}`;
      rows.push({ name, shape, ...times, peerName: peer.name, ratio: times.peer / times.ours });
    }
  }
  return rows;
}

const random = new Random(1);

function normal(count: number): Float32Array {
  return Float32Array.from({ length: count }, () => random.normal());
}

function ours(size: number, precision: PrecisionName): () => Promise<unknown> {
  const spec = attentionSpec({ heads: HEADS, queryLength: LENGTH, keyLength: LENGTH, headSize: size });
  const operand = () => normal(HEADS * LENGTH * size);
  const tensors = { query: operand(), key: operand(), value: operand() };
  return () => attention(tensors, spec, { precision, backend: 'wasm' });
}

async function fasterOf(a: Peer, b: Peer): Promise<Peer> {
  const { ours: timeOfA, peer: timeOfB } = await interleaved(a.run, b.run, 5, () => {});
  return timeOfA < timeOfB ? a : b;
}

async function multiHeadAttention(size: number): Promise<Peer> {
  const dims = [1, LENGTH, HEADS * size];
  const inputs = ['query', 'key', 'value'].map((name) => ({ name, dims }));
  const model = operatorModel({
    domain: 'com.microsoft',
    operator: 'MultiHeadAttention',
    inputs,
    outputs: [{ name: 'output', dims }],
    attributes: { num_heads: { int: HEADS } },
  });
  return peer('MultiHeadAttention f32, ONNX Runtime Web', model, inputs);
}

/** As generous as can be: the keys are transposed and the scale is multiplied in beforehand. */
async function matrixProducts(size: number): Promise<Peer> {
  const dims = [1, HEADS, LENGTH, size];
  const inputs = [
    { name: 'query', dims },
    { name: 'key', dims: [1, HEADS, size, LENGTH] },
    { name: 'value', dims },
  ];
  const node = { domain: '', attributes: {} };
  const model = graphModel({
    nodes: [
      { ...node, operator: 'MatMul', inputs: ['query', 'key'], outputs: ['scores'] },
      { ...node, operator: 'Softmax', inputs: ['scores'], outputs: ['weights'] },
      { ...node, operator: 'MatMul', inputs: ['weights', 'value'], outputs: ['output'] },
    ],
    inputs,
    outputs: [{ name: 'output', dims }],
  });
  return peer('MatMul-Softmax-MatMul f32, ONNX Runtime Web', model, inputs);
}

async function peer(
  name: string,
  model: Uint8Array,
  inputs: readonly { readonly name: string; readonly dims: readonly number[] }[],
): Promise<Peer> {
  const session = await ort.InferenceSession.create(model, { executionProviders: ['wasm'] });
  const feeds = Object.fromEntries(
    inputs.map(({ name, dims }) => [
      name,
      new ort.Tensor('float32', normal(dims.reduce((product, dim) => product * dim)), dims),
    ]),
  );
  return { name, run: () => session.run(feeds) };
}
