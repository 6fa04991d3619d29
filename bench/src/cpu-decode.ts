import {
  convertModel,
  createSession,
  findRuntime,
  kvCacheBytes,
  type Runtime,
  writeModel,
} from '@mxattn/ort-op';
import { terminalProgress } from '@mxattn/progress';
import { type Attention, attentionName, attentions } from './attentions.js';
import { feed, graphRunner, normal } from './cpu-operator.js';
import { interleaved } from './interleave.js';
import { graphModel, type Node } from './operator-model.js';
import type { Row } from './row.js';

type Tensor = InstanceType<Runtime['ort']['Tensor']>;

const HEADS = 32;
const KV_HEADS = 8;
const SIZE = 128;
const LENGTH = 8192;
const LABEL = `1,${HEADS},${KV_HEADS},1,${LENGTH},${SIZE}`;
/** Decoding is a loop. */
const IN_TURN = 5;
/**
 * One token after a long cache, through a session with a native cache that grows from run to run. The peers compute
 * attention as MatMul, Softmax, MatMul, with the query heads that share a key as rows: inside the runtime alone, on keys
 * and values that are there already, and as a stock session that takes and gives the cache as tensors.
 */
export async function decodeRows(threads: number): Promise<Row[]> {
  const inside = await decomposed(threads);
  const stock = await stockDecode(threads);
  const rows: Row[] = [];
  const row = async (
    name: string,
    ours: () => Promise<unknown>,
    peer: () => Promise<unknown>,
    peerName: string,
    rounds: number,
  ) => {
    const times = await terminalProgress(`${name} (${LABEL})`, rounds, (step) =>
      interleaved(ours, peer, rounds, step, IN_TURN),
    );
    rows.push({ name, shape: LABEL, ...times, peerName, ratio: times.peer / times.ours });
  };
  for (const attention of attentions) {
    const { step: ours } = await nativeDecode(attention, threads);
    const name = `decode, ${attentionName(attention)}`;
    await row(name, ours, inside, 'MatMul, Softmax, MatMul f32 inside ONNX Runtime', 15);
    await row(name, ours, stock, 'the same through run() with past and present', 15);
  }
  return rows;
}

/** Memory of a cache beside that of floats. */
export async function cacheRows(threads: number): Promise<Row[]> {
  const peer = (2 * KV_HEADS * LENGTH * SIZE * 4) / 2 ** 20;
  const rows: Row[] = [];
  for (const format of ['mxfp4', 'mxfp6', 'mxfp8', 'f16'] as const) {
    const { present } = await nativeDecode({ precision: 'f32', kvCacheFormat: format }, threads);
    const ours = kvCacheBytes(present()) / 2 ** 20;
    const shape = `${KV_HEADS},${LENGTH},${SIZE}`;
    const peerName = 'f32 tensors';
    rows.push({ name: `cache, ${format}`, shape, ours, peer, unit: 'MiB', peerName, ratio: peer / ours });
  }
  return rows;
}

/** A session whose cache is in native memory, and a step that appends a token to it. */
async function nativeDecode(attention: Attention, threads: number) {
  const { ort } = findRuntime();
  const { model } = convertModel(attentionModel(), { crossAttention: true });
  const session = await createSession(writeModel(model), { backend: 'native', ...attention, threads });
  const dims = [1, KV_HEADS, LENGTH - 1, SIZE];
  const past = () => new ort.Tensor('float32', normal(KV_HEADS * (LENGTH - 1) * SIZE), dims);
  const token = (heads: number) => new ort.Tensor('float32', normal(heads * SIZE), [1, 1, heads * SIZE]);
  const fixed = { query: token(HEADS), key: token(KV_HEADS), value: token(KV_HEADS) };
  let cache: { past_key: Tensor; past_value: Tensor } = { past_key: past(), past_value: past() };
  const step = async () => {
    const { present_key, present_value } = await session.run({ ...fixed, ...cache });
    cache = { past_key: present_key as Tensor, past_value: present_value as Tensor };
  };
  await step();
  return { step, present: () => cache.past_key };
}

/** Causal attention with a cache. */
function attentionModel(): Uint8Array {
  const kv = (name: string) => ({ name, dims: [1, KV_HEADS, null, SIZE] });
  // A run of one token: as many queries as new keys, so that causality needs no mask.
  const token = (name: string, heads: number) => ({ name, dims: [1, 1, heads * SIZE] });
  return graphModel({
    opset: 23,
    nodes: [
      {
        domain: '',
        operator: 'Attention',
        inputs: ['query', 'key', 'value', '', 'past_key', 'past_value'],
        outputs: ['output', 'present_key', 'present_value'],
        attributes: { q_num_heads: { int: HEADS }, kv_num_heads: { int: KV_HEADS }, is_causal: { int: 1 } },
      },
    ],
    inputs: [
      token('query', HEADS),
      token('key', KV_HEADS),
      token('value', KV_HEADS),
      kv('past_key'),
      kv('past_value'),
    ],
    outputs: [token('output', HEADS), kv('present_key'), kv('present_value')],
  });
}

/** Attention of query rows [1, kv heads, rows, size] on keys and values in heads. */
function products(key: string, value: string): Node[] {
  return [
    {
      domain: 'com.microsoft',
      operator: 'FusedMatMul',
      inputs: ['query', key],
      outputs: ['scores'],
      attributes: { transB: { int: 1 }, alpha: { float: 1 / Math.sqrt(SIZE) } },
    },
    { domain: '', operator: 'Softmax', inputs: ['scores'], outputs: ['weights'], attributes: {} },
    { domain: '', operator: 'MatMul', inputs: ['weights', value], outputs: ['output'], attributes: {} },
  ];
}

const QUERY = [1, KV_HEADS, HEADS / KV_HEADS, SIZE];

function decomposed(threads: number): Promise<() => Promise<unknown>> {
  const dims = [1, KV_HEADS, LENGTH, SIZE];
  const count = KV_HEADS * LENGTH * SIZE;
  const feeds = [
    feed('query', QUERY, normal(HEADS * SIZE)),
    feed('key', dims, normal(count)),
    feed('value', dims, normal(count)),
  ];
  return graphRunner(products('key', 'value'), feeds, threads);
}

async function stockDecode(threads: number): Promise<() => Promise<unknown>> {
  const { ort } = findRuntime();
  const join = (part: string): Node => ({
    domain: '',
    operator: 'Concat',
    inputs: [`past_${part}`, `new_${part}`],
    outputs: [`present_${part}`],
    attributes: { axis: { int: 2 } },
  });
  const kv = (name: string, length: number | null) => ({ name, dims: [1, KV_HEADS, length, SIZE] });
  const model = graphModel({
    nodes: [join('key'), join('value'), ...products('present_key', 'present_value')],
    inputs: [
      { name: 'query', dims: QUERY },
      kv('new_key', 1),
      kv('new_value', 1),
      kv('past_key', null),
      kv('past_value', null),
    ],
    outputs: [{ name: 'output', dims: QUERY }, kv('present_key', null), kv('present_value', null)],
  });
  const session = await ort.InferenceSession.create(model, { intraOpNumThreads: threads });
  const random = (dims: readonly number[]) =>
    new ort.Tensor('float32', normal(dims.reduce((a, b) => a * b)), dims);
  const fixed = {
    query: random(QUERY),
    new_key: random([1, KV_HEADS, 1, SIZE]),
    new_value: random([1, KV_HEADS, 1, SIZE]),
  };
  let past: Record<string, Tensor> = {
    past_key: random([1, KV_HEADS, LENGTH - 1, SIZE]),
    past_value: random([1, KV_HEADS, LENGTH - 1, SIZE]),
  };
  return async () => {
    const { present_key, present_value } = await session.run({ ...fixed, ...past });
    past = { past_key: present_key as Tensor, past_value: present_value as Tensor };
  };
}
