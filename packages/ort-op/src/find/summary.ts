import { DataType } from '../model/index.js';
import type { AttentionSummary, FoundAttention } from './types.js';

/** What a user learns about an attention, and nothing of the graph it is in. */
export function summaryOf(attention: FoundAttention, layer: number = attention.layer): AttentionSummary {
  const { nodes, output, heads, kvHeads, headSize, valueHeadSize, scale, softcap } = attention;
  const { selfAttention, maskKind, hasCache } = attention;
  return {
    layer,
    elementType: attention.type === DataType.FLOAT16 ? 'float16' : 'float32',
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
