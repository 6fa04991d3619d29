import { floatAttribute, intAttribute, type ModelProto, type NodeProto } from '../model/index.js';

const domain = 'com.microsoft';
/** Where a node takes its bias, and the inputs that change attention in a way that its program does not show by name. */
const biasInput: Readonly<Record<string, number>> = { MultiHeadAttention: 5, GroupQueryAttention: 10 };
const sinkInput = 11;

/** The nodes that ONNX Runtime computes with its fused attention programs, in graph order. */
export function carrierNodes(model: ModelProto): NodeProto[] {
  return (model.graph?.node ?? []).filter((node) => node.domain === domain && node.opType in biasInput);
}

/** The node that the `layer`th replaced attention became. */
export function carrierOf(nodes: readonly NodeProto[], layer: number): NodeProto | undefined {
  return nodes.find(({ name, opType }) => name === `${opType}_${layer}`);
}

export function hasBias({ opType, input }: NodeProto): boolean {
  return Boolean(input[biasInput[opType] ?? 0]);
}

/**
 * Why the kernels cannot stand in for a node: dispatches do not tell which node they are of, so that one such node in a
 * model speaks against all.
 */
export function nodeObstacle(node: NodeProto): string | undefined {
  const feature =
    (floatAttribute(node, 'softcap', 0) !== 0 && 'a soft cap') ||
    (intAttribute(node, 'smooth_softmax', 0) === 1 && 'a smooth softmax') ||
    (intAttribute(node, 'local_window_size', -1) > 0 && 'a window') ||
    (node.input[sinkInput] && 'sinks');
  return feature
    ? `${node.name || node.output[0]} has ${feature}, which is not supported in place yet`
    : undefined;
}
