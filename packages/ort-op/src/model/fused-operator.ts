/** Operator domain of FusedAttention. */
export const fusedDomain = 'ai.mxattn';
/** Operator type that replaces attention. */
export const fusedOperator = 'FusedAttention';
/** Graph input with one int32 per layer, the precision to compute it in; zeros if it is not fed. */
export const precisionInput = 'mxattn.precision';
/** Bias of the attentions that have none: an initializer of one zero. */
export const noBias = 'mxattn.no_bias';
