import { fromF16, toF16 } from '../formats/half.js';
import { type PrecisionName, precision, type Recipe } from '../precision/recipes.js';
import { findBackend } from './backend.js';
import { withoutSpareKeys } from './spare-keys.js';
import type { AttentionSpec } from './spec.js';
import { type AttentionTensors, checkTensors } from './tensors.js';

/** How {@link attention} computes. */
export interface AttentionOptions {
  /** A precision's name or a recipe of one's own; default f32. */
  readonly precision?: PrecisionName | Recipe;
  /** A registered backend's name; default `auto`, the best that supports the call. */
  readonly backend?: string;
}

/** The operands of one attention with query, key and value as the bits of float16 (IEEE binary16) numbers. */
export interface HalfAttentionTensors extends Omit<AttentionTensors, 'query' | 'key' | 'value'> {
  readonly query: Uint16Array;
  readonly key: Uint16Array;
  readonly value: Uint16Array;
}

/**
 * Computes attention on typed arrays.
 *
 * @returns [batch, heads, queryLength, valueHeadSize], or BSHD in that layout; float16 for float16 operands, which are
 *   computed with as float32.
 * @throws MxattnError (as a rejection) if a tensor does not fit the spec, the precision or backend is unknown, or
 *   the backend cannot compute this spec.
 */
export function attention(
  tensors: AttentionTensors,
  spec: AttentionSpec,
  options?: AttentionOptions,
): Promise<Float32Array>;
export function attention(
  tensors: HalfAttentionTensors,
  spec: AttentionSpec,
  options?: AttentionOptions,
): Promise<Uint16Array>;
export async function attention(
  tensors: AttentionTensors | HalfAttentionTensors,
  spec: AttentionSpec,
  options: AttentionOptions = {},
): Promise<Float32Array | Uint16Array> {
  const { precision: wanted = 'f32', backend = 'auto' } = options;
  const recipe = typeof wanted === 'string' ? precision(wanted) : wanted;
  const half = tensors.query instanceof Uint16Array;
  const floats = half ? widened(tensors as HalfAttentionTensors) : (tensors as AttentionTensors);
  checkTensors(floats, spec);
  const compact = withoutSpareKeys(floats, spec);
  const chosen = findBackend(backend, compact.spec, recipe);
  const output = await chosen.attention(compact.tensors, compact.spec, recipe);
  return half ? Uint16Array.from(output, toF16) : output;
}

function widened(tensors: HalfAttentionTensors): AttentionTensors {
  const floats = (data: Uint16Array) => Float32Array.from(data, fromF16);
  return {
    ...tensors,
    query: floats(tensors.query),
    key: floats(tensors.key),
    value: floats(tensors.value),
  };
}
