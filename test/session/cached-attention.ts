import { convertModel, writeModel } from '@mxattn/ort-op';
import { Tensor } from 'onnxruntime-node';
import { normal } from '../conformance/random.js';
import { onnx } from '../graph/onnx-text.js';

export const HEADS = 4;
export const KV_HEADS = 2;
export const SIZE = 32;

/** Causal attention with a cache, small enough to be run thousands of times. */
export function cachedAttention(): Uint8Array {
  const kv = `f32[1,${KV_HEADS},P,${SIZE}]`;
  const text = onnx({
    nodes: 'y nk nv = Attention<is_causal=1>(q, k, v, , pk, pv)',
    inputs: {
      q: `f32[1,${HEADS},S,${SIZE}]`,
      k: `f32[1,${KV_HEADS},S,${SIZE}]`,
      v: `f32[1,${KV_HEADS},S,${SIZE}]`,
      pk: kv,
      pv: kv,
    },
    outputs: {
      y: `f32[1,${HEADS},S,${SIZE}]`,
      nk: `f32[1,${KV_HEADS},?,${SIZE}]`,
      nv: `f32[1,${KV_HEADS},?,${SIZE}]`,
    },
    opset: 23,
  });
  return writeModel(convertModel(text, { crossAttention: true }).model);
}

function tensor(heads: number, length: number, seed: number): Tensor {
  return new Tensor('float32', normal(heads * length * SIZE, seed), [1, heads, length, SIZE]);
}

/** New tokens, and an empty cache. */
export function attentionFeeds(length: number, seed: number): Record<string, Tensor> {
  return {
    q: tensor(HEADS, length, seed),
    k: tensor(KV_HEADS, length, seed + 1),
    v: tensor(KV_HEADS, length, seed + 2),
    pk: tensor(KV_HEADS, 0, 1),
    pv: tensor(KV_HEADS, 0, 1),
  };
}
