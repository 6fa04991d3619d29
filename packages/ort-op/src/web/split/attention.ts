import { type AttentionSpec, attentionSpec, type PrecisionName } from '@mxattn/core';
import type * as Ort from 'onnxruntime-common';
import type { FusedValues } from '../../rewrite/index.js';

/** The tensors that an attention reads: query, key, value [batch, heads, tokens, size], bias up to four axes. */
export interface Operands {
  readonly query: Ort.Tensor;
  readonly key: Ort.Tensor;
  readonly value: Ort.Tensor;
  readonly bias?: Ort.Tensor;
}

/** What computes attentions between segments. */
export interface SplitAttention {
  /** Where operands shall lie. */
  readonly location: 'gpu-buffer' | 'cpu';
  /** @returns [batch, heads, tokens, value head size], for the caller to dispose of. */
  compute(values: FusedValues, operands: Operands, precision: PrecisionName): Promise<Ort.Tensor>;
  /** Frees what it holds. */
  release(): void;
}

/** The attention of a cut, with the sizes of its operands. */
export function specOf(
  { scale, softcap, window }: FusedValues,
  { query, key, value }: Operands,
): AttentionSpec {
  const [batch, heads, queryLength, headSize] = query.dims as [number, number, number, number];
  const [, kvHeads, keyLength] = key.dims as [number, number, number];
  const every = queryLength + keyLength;
  const limit = (keys: number) => (keys < 0 ? every : keys);
  return attentionSpec({
    batch,
    heads,
    kvHeads,
    queryLength,
    keyLength,
    headSize,
    valueHeadSize: value.dims[3]!,
    scale,
    softcap,
    causal: window.right === 0,
    window:
      window.left < 0 && window.right <= 0 ? null : { left: limit(window.left), right: limit(window.right) },
  });
}
