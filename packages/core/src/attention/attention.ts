import { type PrecisionName, precision, type Recipe } from '../precision/recipes.js';
import { findBackend } from './backend.js';
import type { AttentionSpec } from './spec.js';
import { type AttentionTensors, checkTensors } from './tensors.js';

/** How {@link attention} computes. */
export interface AttentionOptions {
  /** A precision's name or a recipe of one's own; default f32. */
  readonly precision?: PrecisionName | Recipe;
  /** A registered backend's name; default `auto`, the best that supports the call. */
  readonly backend?: string;
}

/**
 * Computes attention on typed arrays.
 *
 * @returns [batch, heads, queryLength, valueHeadSize], or BSHD in that layout.
 * @throws MxattnError (as a rejection) if a tensor does not fit the spec, the precision or backend is unknown, or
 *   the backend cannot compute this spec.
 */
export async function attention(
  tensors: AttentionTensors,
  spec: AttentionSpec,
  options: AttentionOptions = {},
): Promise<Float32Array> {
  const { precision: wanted = 'f32', backend = 'auto' } = options;
  const recipe = typeof wanted === 'string' ? precision(wanted) : wanted;
  checkTensors(tensors, spec);
  return findBackend(backend, spec, recipe).attention(tensors, spec, recipe);
}
