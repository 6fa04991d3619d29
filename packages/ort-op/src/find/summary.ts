import type { AttentionSummary } from './types.js';

/** What a user learns about an attention, and nothing of the graph it is in. */
export function summaryOf(attention: AttentionSummary, layer: number = attention.layer): AttentionSummary {
  const { nodes, output, heads, kvHeads, headSize, valueHeadSize, scale, softcap } = attention;
  const { selfAttention, maskKind, hasCache } = attention;
  return {
    layer,
    nodes,
    output,
    heads,
    kvHeads,
    headSize,
    valueHeadSize,
    scale,
    softcap,
    selfAttention,
    maskKind,
    hasCache,
  };
}
