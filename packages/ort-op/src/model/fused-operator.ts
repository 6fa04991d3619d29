import { intAttribute } from './attributes.js';
import type { NodeProto } from './onnx_pb.js';

/** Operator domain of FusedAttention. */
export const fusedDomain = 'ai.mxattn';
/** Operator type that replaces attention. */
export const fusedOperator = 'FusedAttention';
/** Graph input with one int32 per layer, the precision to compute it in; zeros if it is not fed. */
export const precisionInput = 'mxattn.precision';
/** Bias of the attentions that have none: an initializer of one zero. */
export const noBias = 'mxattn.no_bias';

/**
 * The band of keys that a FusedAttention shows by position: its attributes causal, window_left and window_right. -1: no
 * limit.
 */
export function bandOf(node: NodeProto): { left: number; right: number } {
  const right = intAttribute(node, 'window_right', -1);
  const causal = intAttribute(node, 'causal', 0) !== 0;
  return { left: intAttribute(node, 'window_left', -1), right: causal ? 0 : right };
}
