import { fromF16, toF16 } from '@mxattn/core';
import type { Tensor } from 'onnxruntime-common';
import { noise } from './noise.js';
import type { ModelText } from './onnx-text.js';

/** A decoder as ONNX Runtime GenAI writes them, with random weights. */
export interface DecoderSpec {
  readonly type?: 'f32' | 'f16';
  readonly layers?: number;
  readonly headSize?: number;
  readonly rotary?: boolean;
  /** One projection for query, key and value. */
  readonly packed?: boolean;
  /** Attributes of its attentions, besides the number of heads. */
  readonly more?: string;
  readonly opset?: number;
  /** `seqlens_k` is an input, `lengths`, instead of being computed from the mask. */
  readonly lengths?: boolean;
}

export const HEADS = 4;
export const KV_HEADS = 2;
const WIDTH = 16;
const POSITIONS = 128;

/** Layers of GroupQueryAttention with a residual around each; output `y`, cache `past.0.key`, `present.0.key` and so on. */
export function groupQueryDecoder(spec: DecoderSpec): ModelText {
  const { type = 'f32', layers = 2, headSize = 16, rotary = false, packed = false, more = '' } = spec;
  const nodes: string[] = [];
  const initializers: Record<string, { dims: number[]; data: Float32Array }> = {};
  const constant = (name: string, dims: number[], data: Float32Array) => {
    initializers[`${name}_f32`] = { dims, data };
    nodes.push(type === 'f16' ? `${name} = Cast<to=10>(${name}_f32)` : `${name} = Identity(${name}_f32)`);
  };
  const weights = (name: string, from: number, to: number, seed: number) => {
    const scale = 1.5 / Math.sqrt(from);
    constant(
      name,
      [from, to],
      noise(from * to, seed).map((each) => each * scale),
    );
  };
  if (!spec.lengths) {
    nodes.push(`
      tokens = ReduceSum<keepdims=0>(mask, [1])
      last = Sub(tokens, 1i)
      lengths = Cast<to=6>(last)`);
  }
  nodes.push(`
    shape = Shape(mask)
    length = Gather(shape, 1i)
    total = Cast<to=6>(length)`);
  if (rotary) {
    const half = headSize / 2;
    const angles = (wave: (angle: number) => number) =>
      Float32Array.from({ length: POSITIONS * half }, (_, at) =>
        wave(Math.floor(at / half) / 30 ** ((at % half) / half)),
      );
    constant('cos', [POSITIONS, half], angles(Math.cos));
    constant('sin', [POSITIONS, half], angles(Math.sin));
  }
  const attributes = `num_heads=${HEADS}, kv_num_heads=${KV_HEADS}${rotary ? ', do_rotary=1' : ''}${more}`;
  const kv = (length: string) => `${type}[B,${KV_HEADS},${length},${headSize}]`;
  const cache = (name: string, length: string) =>
    Object.fromEntries(
      Array.from({ length: layers }, (_, layer) => [
        [`${name}.${layer}.key`, kv(length)],
        [`${name}.${layer}.value`, kv(length)],
      ]).flat(),
    );
  let hidden = 'x';
  for (let layer = 0; layer < layers; layer++) {
    const heads = packed ? { qkv: HEADS + 2 * KV_HEADS } : { q: HEADS, k: KV_HEADS, v: KV_HEADS };
    Object.entries(heads).forEach(([name, count], i) => {
      weights(`w${name}${layer}`, WIDTH, count * headSize, 10 * layer + i + 1);
      nodes.push(`${name}${layer} = MatMul(${hidden}, w${name}${layer})`);
    });
    weights(`wo${layer}`, HEADS * headSize, WIDTH, 10 * layer + 9);
    const operands = packed ? `qkv${layer}, , ` : `q${layer}, k${layer}, v${layer}`;
    const past = `past.${layer}.key, past.${layer}.value`;
    nodes.push(`
      a${layer} present.${layer}.key present.${layer}.value = com.microsoft.GroupQueryAttention<${attributes}>(${operands}, ${past}, lengths, total, ${rotary ? 'cos, sin' : ''})
      o${layer} = MatMul(a${layer}, wo${layer})
      ${layer + 1 === layers ? 'y' : `h${layer}`} = Add(${hidden}, o${layer})`);
    hidden = `h${layer}`;
  }
  return {
    nodes: nodes.join('\n'),
    initializers,
    inputs: {
      x: `${type}[B,S,${WIDTH}]`,
      mask: 'i64[B,T]',
      ...(spec.lengths ? { lengths: 'i32[B]' } : {}),
      ...cache('past', 'P'),
    },
    outputs: {
      y: `${type}[B,S,${WIDTH}]`,
      ...cache('present', '?'),
    },
    opset: spec.opset ?? 17,
  };
}

type TensorType = new (
  type: 'float32' | 'float16' | 'int64' | 'int32',
  data: Float32Array | Uint16Array | BigInt64Array | Int32Array,
  dims: readonly number[],
) => Tensor;

export interface DecoderRun {
  /** New tokens of each entry. */
  readonly count: number;
  readonly seed: number;
  readonly batch?: number;
  /** Outputs of the run before, if there was one. */
  readonly past?: Readonly<Record<string, unknown>>;
  /** Tokens of each entry of the batch with those before, if they are not as many as there are. */
  readonly tokens?: readonly number[];
}

/** The feeds of a run, made of a runtime's tensors. */
export function decoderFeeds(
  Tensor: unknown,
  { type = 'f32', layers = 2, headSize = 16, lengths = false }: DecoderSpec,
  { count, seed, batch = 1, past, tokens }: DecoderRun,
) {
  const create = Tensor as TensorType;
  const numbers = (dims: readonly number[], data: Float32Array) =>
    type === 'f16'
      ? new create('float16', Uint16Array.from(data, toF16), dims)
      : new create('float32', data, dims);
  const total = count + ((past?.['present.0.key'] as Tensor | undefined)?.dims[2] ?? 0);
  const entries = tokens ?? new Array<number>(batch).fill(total);
  const mask = entries.flatMap((each) => Array.from({ length: total }, (_, at) => BigInt(at < each)));
  const feeds: Record<string, Tensor> = {
    // Not the numbers of the weights.
    x: numbers([batch, count, WIDTH], noise(batch * count * WIDTH, 1000 + 7919 * seed)),
    mask: new create('int64', BigInt64Array.from(mask), [batch, total]),
    ...(lengths
      ? {
          lengths: new create(
            'int32',
            Int32Array.from(entries, (each) => each - 1),
            [batch],
          ),
        }
      : {}),
  };
  for (let layer = 0; layer < layers; layer++) {
    for (const part of ['key', 'value']) {
      feeds[`past.${layer}.${part}`] = (past?.[`present.${layer}.${part}`] ??
        numbers([batch, KV_HEADS, 0, headSize], new Float32Array(0))) as Tensor;
    }
  }
  return feeds;
}

/** The numbers of a tensor of float32 or float16, wherever it lies. */
export async function numbersIn(tensor: unknown): Promise<Float32Array> {
  const { type } = tensor as Tensor;
  const data = await (tensor as Tensor).getData();
  if (type !== 'float16') return data as Float32Array;
  // A Float16Array where there is one.
  const { buffer, byteOffset, length } = data as Uint16Array;
  return Float32Array.from(new Uint16Array(buffer, byteOffset, length), fromF16);
}
