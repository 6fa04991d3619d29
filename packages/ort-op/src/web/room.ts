import type { AttentionSpec } from '@mxattn/core';

/** Scratch buffers have room for lengths up to the next multiple of this, so that a growing cache seldom needs new ones. */
const LENGTH_STEP = 1024;

/** The length that there is room for. */
export function roomFor(length: number): number {
  return Math.ceil(length / LENGTH_STEP) * LENGTH_STEP;
}

/** The attention with the longest lengths that a plan for it shall serve; plans are alike where `key` is. */
export function planRoom(spec: AttentionSpec): { readonly capacity: AttentionSpec; readonly key: string } {
  // A few queries stay a few.
  const queryLength = spec.queryLength <= 64 ? 64 : roomFor(spec.queryLength);
  const keyLength = roomFor(spec.keyLength);
  const capacity = { ...spec, queryLength, keyLength };
  return { capacity, key: [spec.batch, spec.heads, spec.kvHeads, queryLength, keyLength].join() };
}
