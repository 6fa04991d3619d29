import {
  attentionSpec,
  conventional,
  emulateAttention,
  recipes,
  referenceAttention,
  toF16,
} from '@mxattn/core';
import type { MxattnSession } from '@mxattn/ort-op/web';
import type * as Ort from 'onnxruntime-common';
import type { Tensor } from 'onnxruntime-common';
import { normal, relativeError } from '../conformance/random.js';
import { numbersIn } from '../graph/group-query-decoder.js';
import type { ModelText } from '../graph/onnx-text.js';
import { cachedKeys, cachedValues } from './cached-operands.js';

export const HEADS = 4;
export const KV_HEADS = 2;
export const SIZE = 64;
export const WIDTH = 16;
/** Of weights in 127 steps, and of those of the Fused-Softmax, against exact ones; matrix units round operands, too. */
export const WEIGHT_ERROR = process.env.MXATTN_GPU === undefined ? 0.03 : 0.06;

export type Outputs = Readonly<Record<string, Tensor>>;

/** A sequence of runs, or of batches, and the keys and values that the model has computed so far. */
export class Sequence {
  private past: Outputs | undefined;
  readonly outputs: Outputs[] = [];
  private known: { key: Float32Array; value: Float32Array }[] = [];
  length = 0;

  constructor(
    private readonly ort: Pick<typeof Ort, 'Tensor'>,
    private readonly session: MxattnSession,
    readonly batch = 1,
    private readonly padding: readonly number[] = [],
  ) {}

  copy(): Sequence {
    return Object.assign(new Sequence(this.ort, this.session, this.batch, this.padding), this);
  }

  /** The same sequence in another session, with the data of its cache. */
  async to(session: MxattnSession): Promise<Sequence> {
    const { nk, nv } = this.past!;
    const copied = async (each: Tensor) => this.tensor(each.dims, await numbersIn(each));
    const past = { nk: await copied(nk!), nv: await copied(nv!) };
    return Object.assign(new Sequence(this.ort, session, this.batch, this.padding), this, { session, past });
  }

  /** Runs some tokens; gives the output, what it should be, and how far they are apart. */
  async run(count: number, seed: number, packed: boolean, options: { precision?: 'mxfp4' | 'f32' } = {}) {
    const { batch, session } = this;
    const total = this.length + count;
    const masked = session.inputNames.includes('mask');
    const mask = this.mask(count, total);
    const empty = () => this.tensor([batch, KV_HEADS, 0, SIZE], new Float32Array(0));
    const precision = options.precision ?? 'mxfp4';
    const feeds = {
      x: this.tensor([batch, count, WIDTH], normal(batch * count * WIDTH, seed)),
      pk: this.past?.nk ?? empty(),
      pv: this.past?.nv ?? empty(),
      ...(session.inputNames.includes('tokens') ? { tokens: this.tokens(total) } : {}),
      ...(masked ? { mask: this.tensor([batch, 1, count, total], mask) } : {}),
    };
    const outputs = (await session.run(feeds, { step: precision === 'f32' ? 0 : 1 })) as Outputs;
    this.outputs.push(outputs);
    const data = (name: string) => numbersIn(outputs[name]!);
    const [y, query, key, value] = [await data('y'), await data('q'), await data('k'), await data('v')];
    this.known = [...this.known, { key, value }];
    this.past = outputs;
    const first = this.length === 0;
    this.length = total;
    const [keys, values] = [this.all('key'), this.all('value')];
    const spec = attentionSpec({
      batch,
      heads: HEADS,
      kvHeads: KV_HEADS,
      queryLength: count,
      keyLength: total,
      headSize: SIZE,
      causal: true,
    });
    const heads = batch * KV_HEADS;
    const exact = {
      query: transposed(query, batch, count, HEADS),
      ...(masked ? { bias: { data: mask, dims: [batch, 1, count, total] } } : {}),
    };
    const operands =
      first && !packed
        ? { key: keys, value: values }
        : {
            key: cachedKeys(keys.slice(), heads, total, SIZE),
            value: cachedValues(values, heads, total, SIZE),
          };
    // Several queries quantise the newest values too.
    const decoding = packed && count === 1;
    const expected =
      precision === 'f32'
        ? referenceAttention({ ...exact, ...operands }, spec)
        : emulateAttention(
            { ...exact, key: keys, value: decoding ? operands.value : values },
            spec,
            decoding ? { ...recipes.mxfp4, value: null, softmax: conventional(null) } : recipes.mxfp4,
            { arithmetic: 'f32' },
          );
    return { error: relativeError(transposed(y, batch, count, HEADS), expected), outputs };
  }

  /** Keys or values of all tokens, [batch, heads, length, size]. */
  all(part: 'key' | 'value'): Float32Array {
    const result = new Float32Array(this.batch * KV_HEADS * this.length * SIZE);
    let start = 0;
    for (const each of this.known) {
      const count = each[part].length / (this.batch * KV_HEADS * SIZE);
      const rows = transposed(each[part], this.batch, count, KV_HEADS);
      for (let head = 0; head < this.batch * KV_HEADS; head++) {
        const source = rows.subarray(head * count * SIZE, (head + 1) * count * SIZE);
        result.set(source, (head * this.length + start) * SIZE);
      }
      start += count;
    }
    return result;
  }

  /** Left padding of each entry of the batch. */
  private mask(count: number, total: number): Float32Array {
    const mask = new Float32Array(this.batch * count * total);
    this.padding.forEach((hidden, b) => {
      for (let q = 0; q < count; q++)
        mask.fill(-Infinity, (b * count + q) * total, (b * count + q) * total + hidden);
    });
    return mask;
  }

  private tensor(dims: readonly number[], data: Float32Array): Tensor {
    const { Tensor } = this.ort;
    return this.session.inputMetadata.some((each) => each.isTensor && each.type === 'float16')
      ? new Tensor('float16', Uint16Array.from(data, toF16), dims)
      : new Tensor('float32', data, dims);
  }

  /** The mask of a model with GroupQueryAttention. */
  private tokens(total: number): Tensor {
    const mask = new BigInt64Array(this.batch * total).fill(1n);
    return new this.ort.Tensor('int64', mask, [this.batch, total]);
  }
}

/** [batch, length, heads, size] to [batch, heads, length, size]. */
export function transposed(data: Float32Array, batch: number, length: number, heads: number): Float32Array {
  const result = new Float32Array(data.length);
  for (let b = 0; b < batch; b++) {
    for (let t = 0; t < length; t++) {
      for (let h = 0; h < heads; h++) {
        const from = ((b * length + t) * heads + h) * SIZE;
        result.set(data.subarray(from, from + SIZE), ((b * heads + h) * length + t) * SIZE);
      }
    }
  }
  return result;
}

/** As ONNX Runtime GenAI computes them. */
const tokenCounts = `
  sum = ReduceSum<keepdims=0>(tokens, [1])
  last = Sub(sum, 1i)
  lengths = Cast<to=6>(last)
  shape = Shape(tokens)
  length = Gather(shape, 1i)
  total = Cast<to=6>(length)`;

export interface DecoderKind {
  readonly masked?: boolean;
  /** Its attention is a GroupQueryAttention, with a mask of `tokens`. */
  readonly grouped?: boolean;
  readonly type?: 'f32' | 'f16';
}

/** Causal attention of one layer with a cache, and its operands. */
export function decoder({ masked = false, grouped = false, type = 'f32' }: DecoderKind): ModelText {
  const kv = `${type}[B,${KV_HEADS},P,${SIZE}]`;
  const present = `${type}[B,${KV_HEADS},?,${SIZE}]`;
  const weights = (heads: number, seed: number) => ({
    dims: [WIDTH, heads * SIZE],
    data: normal(WIDTH * heads * SIZE, seed).map((each) => each / 4),
  });
  const heads = grouped
    ? `num_heads=${HEADS},kv_num_heads=${KV_HEADS}`
    : `is_causal=1,q_num_heads=${HEADS},kv_num_heads=${KV_HEADS}`;
  const attention = grouped
    ? `com.microsoft.GroupQueryAttention<${heads}>(q, k, v, pk, pv, lengths, total)`
    : `Attention<${heads}>(q, k, v, ${masked ? 'mask' : ''}, pk, pv)`;
  const merged = (heads: number) => `${type}[B,S,${heads * SIZE}]`;
  return {
    nodes: `
      ${grouped ? tokenCounts : ''}
      ${['q', 'k', 'v'].map((name) => `c${name} = Cast<to=${type === 'f16' ? 10 : 1}>(w${name})`).join('\n')}
      q = MatMul(x, cq)
      k = MatMul(x, ck)
      v = MatMul(x, cv)
      y nk nv = ${attention}`,
    inputs: {
      x: `${type}[B,S,${WIDTH}]`,
      pk: kv,
      pv: kv,
      ...(masked ? { mask: `${type}[B,1,S,T]` } : {}),
      ...(grouped ? { tokens: 'i64[B,T]' } : {}),
    },
    initializers: { wq: weights(HEADS, 1), wk: weights(KV_HEADS, 2), wv: weights(KV_HEADS, 3) },
    outputs: {
      y: merged(HEADS),
      nk: present,
      nv: present,
      q: merged(HEADS),
      k: merged(KV_HEADS),
      v: merged(KV_HEADS),
    },
    opset: 23,
  };
}
