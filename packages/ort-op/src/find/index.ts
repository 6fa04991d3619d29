export { type Attentions, findAttention } from './find.js';
export type { AttentionSummary, BiasTerm, FoundAttention, LeftAttention, Operand } from './types.js';
