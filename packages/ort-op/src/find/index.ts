export { type Attentions, findAttention } from './find.js';
export type { AttentionSummary, Band, BiasTerm, FoundAttention, LeftAttention, Operand } from './types.js';
