import { floatAttribute, intAttribute, type ModelProto, type NodeProto } from '../model/index.js';

const domain = 'com.microsoft';
/** Where a node takes its bias and its sinks. */
const biasInput: Readonly<Record<string, number>> = { MultiHeadAttention: 5, GroupQueryAttention: 10 };
/** Where it takes past keys. */
const pastInput: Readonly<Record<string, number>> = { MultiHeadAttention: 6, GroupQueryAttention: 3 };
const sinkInput = 11;

/** The nodes that ONNX Runtime computes with its fused attention programs, in graph order. */
export function carrierNodes(model: ModelProto): NodeProto[] {
  return (model.graph?.node ?? []).filter((node) => node.domain === domain && node.opType in biasInput);
}

/** The node that the `layer`th replaced attention became. */
export function carrierOf(nodes: readonly NodeProto[], layer: number): NodeProto | undefined {
  return nodes.find(({ output }) => output[0] === `mxattn.${layer}.mixed`);
}

/** Whether a node's keys and values continue those of an earlier run. */
export function hasPast({ opType, input }: NodeProto): boolean {
  return Boolean(input[pastInput[opType] ?? 0]);
}

export function hasBias({ opType, input }: NodeProto): boolean {
  return Boolean(input[biasInput[opType] ?? 0]);
}

/** What a node's attention is beyond what its programs show. */
export interface NodeFeatures {
  /** Of the scores, which the programs leave out; 0 for none. */
  readonly softcap: number;
  readonly sinks: boolean;
  /** All entries of a batch have as many keys, whatever lengths the programs are given. */
  readonly equalLengths: boolean;
}

/** @param ours The nodes that this package has put in the place of attentions, all on equal lengths. */
export function nodeFeatures(nodes: readonly NodeProto[], ours: ReadonlySet<NodeProto>): NodeFeatures[] {
  // Dispatches do not tell which node they are of.
  const equalLengths = nodes.every((node) => ours.has(node));
  return nodes.map((node) => ({ softcap: softcapOf(node), sinks: hasSinks(node), equalLengths }));
}

export function softcapOf(node: NodeProto): number {
  return floatAttribute(node, 'softcap', 0);
}

export function hasSinks({ input }: NodeProto): boolean {
  return Boolean(input[sinkInput]);
}

/**
 * Why the kernels cannot stand in for a node: dispatches do not tell which node they are of, so that one such node in a
 * model speaks against all.
 */
export function nodeObstacle(node: NodeProto, ours: ReadonlySet<NodeProto>): string | undefined {
  const feature =
    // Until its kernel is compiled ONNX Runtime would leave it out.
    (softcapOf(node) !== 0 && !ours.has(node) && 'a soft cap') ||
    (intAttribute(node, 'smooth_softmax', 0) === 1 && 'a smooth softmax') ||
    (intAttribute(node, 'local_window_size', -1) > 0 && 'a window');
  return feature
    ? `${node.name || node.output[0]} has ${feature}, which is not supported in place`
    : undefined;
}
