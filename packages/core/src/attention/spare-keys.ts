import type { AttentionSpec } from './spec.js';
import type { AttentionTensors } from './tensors.js';

/** The same attention without the room that key and value have for more tokens, so that backends need not know of it. */
export function withoutSpareKeys(
  tensors: AttentionTensors,
  spec: AttentionSpec,
): { tensors: AttentionTensors; spec: AttentionSpec } {
  const { keyLength, keyCapacity, headSize, valueHeadSize } = spec;
  if (keyCapacity === null || keyCapacity === keyLength) return { tensors, spec };
  return {
    tensors: {
      ...tensors,
      key: firstTokens(tensors.key, spec, keyCapacity, headSize),
      value: firstTokens(tensors.value, spec, keyCapacity, valueHeadSize),
    },
    spec: { ...spec, keyCapacity: null },
  };
}

function firstTokens(
  data: Float32Array,
  spec: AttentionSpec,
  keyCapacity: number,
  channels: number,
): Float32Array {
  const { batch, kvHeads, keyLength, layout } = spec;
  // BHSD: a run of tokens per head; BSHD: one per sequence, each token with all heads.
  const [runs, token] = layout === 'BHSD' ? [batch * kvHeads, channels] : [batch, kvHeads * channels];
  const compact = new Float32Array(runs * keyLength * token);
  for (let run = 0; run < runs; run++) {
    const from = run * keyCapacity * token;
    compact.set(data.subarray(from, from + keyLength * token), run * keyLength * token);
  }
  return compact;
}
