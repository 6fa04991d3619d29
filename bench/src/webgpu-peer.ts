import { toF16 } from '@mxattn/core';
import { InferenceSession, Tensor } from 'onnxruntime-node';
import { type Edge, graphModel, type Node } from './operator-model.js';
import { Random } from './random.js';

/** ONNX's type of float16 tensors and of int32. */
const FLOAT16 = 10;
const INT32 = 6;

/** Attentions of a chain: its time, less that of one, is that of the others, without transfers. */
const CHAIN = 5;

interface Shape {
  readonly heads: number;
  readonly kvHeads: number;
  readonly queryLength: number;
  readonly keyLength: number;
  readonly headSize: number;
}

/**
 * Milliseconds of one attention in the WebGPU provider of onnxruntime-node on float16 tensors: MultiHeadAttention, or for
 * a single query GroupQueryAttention with a cache. Undefined where that provider does not work.
 */
export async function ortWebgpuPeer(shape: Shape): Promise<(() => Promise<number>) | undefined> {
  try {
    const long = await chain(shape, CHAIN);
    const short = await chain(shape, 1);
    return async () => ((await long()) - (await short())) / (CHAIN - 1);
  } catch (error) {
    console.warn(`skipped: ONNX Runtime's WebGPU provider: ${(error as Error).message.split('\n')[0]}`);
    return undefined;
  }
}

const random = new Random(1);

function halves(count: number): Uint16Array {
  const some = Uint16Array.from({ length: Math.min(count, 1 << 18) }, () => toF16(random.normal()));
  const all = new Uint16Array(count);
  for (let i = 0; i < count; i += some.length) all.set(some.subarray(0, count - i), i);
  return all;
}

async function chain(shape: Shape, count: number): Promise<() => Promise<number>> {
  const { heads, kvHeads, queryLength, keyLength, headSize } = shape;
  const decode = queryLength === 1;
  const half = (name: string, dims: number[]): Edge => ({ name, dims, type: FLOAT16 });
  const query = half('query', [1, queryLength, heads * headSize]);
  const newLength = decode ? 1 : keyLength;
  const operands = ['key', 'value'].map((name) => half(name, [1, newLength, kvHeads * headSize]));
  const past = ['past_key', 'past_value'].map((name) => half(name, [1, kvHeads, keyLength - 1, headSize]));
  const lengths: Edge[] = [
    { name: 'seqlens_k', dims: [1], type: INT32 },
    { name: 'total_sequence_length', dims: [1], type: INT32 },
  ];
  const inputs = decode ? [query, ...operands, ...past, ...lengths] : [query, ...operands];
  const rest = inputs.slice(1).map(({ name }) => name);
  const nodes = Array.from({ length: count }, (_, i): Node => {
    const source = i === 0 ? 'query' : `output_${i - 1}`;
    const outputs = decode ? [`output_${i}`, `present_key_${i}`, `present_value_${i}`] : [`output_${i}`];
    return {
      domain: 'com.microsoft',
      operator: decode ? 'GroupQueryAttention' : 'MultiHeadAttention',
      inputs: [source, ...rest],
      outputs,
      attributes: { num_heads: { int: heads }, ...(decode ? { kv_num_heads: { int: kvHeads } } : {}) },
    };
  });
  // Only the largest element leaves the GPU.
  nodes.push({
    domain: '',
    operator: 'ReduceMax',
    inputs: [`output_${count - 1}`],
    outputs: ['largest'],
    attributes: { keepdims: { int: 0 } },
  });
  const model = graphModel({ nodes, inputs, outputs: [half('largest', [])] });
  const session = await InferenceSession.create(model, { executionProviders: ['webgpu'] });
  const size = (dims: readonly (number | null)[]) => dims.reduce<number>((product, dim) => product * dim!, 1);
  const feeds = Object.fromEntries(
    inputs.map(({ name, dims, type }) => [
      name,
      type === INT32
        ? new Tensor('int32', Int32Array.of(name === 'seqlens_k' ? keyLength - 1 : keyLength), [1])
        : new Tensor('float16', halves(size(dims)), dims as number[]),
    ]),
  );
  return async () => {
    const start = performance.now();
    await session.run(feeds);
    return performance.now() - start;
  };
}
