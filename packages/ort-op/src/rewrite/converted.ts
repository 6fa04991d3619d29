import type { AttentionSummary } from '../find/index.js';
import { bodies, floatAttribute, intAttribute } from '../model/attributes.js';
import type { GraphProto, ModelProto, NodeProto } from '../model/index.js';
import { fusedDomain, fusedOperator } from './targets/fused.js';

/** The attentions of a model that was converted before, by layer; none for any other model. */
export function convertedAttentions(model: ModelProto): AttentionSummary[] {
  if (!model.graph || !model.opsetImport.some(({ domain }) => domain === fusedDomain)) return [];
  return fusedNodes(model.graph)
    .map(summary)
    .sort((a, b) => a.layer - b.layer);
}

function fusedNodes(graph: GraphProto): NodeProto[] {
  return graph.node.flatMap((node) => {
    const here = node.domain === fusedDomain && node.opType === fusedOperator ? [node] : [];
    return [...here, ...bodies(node).flatMap(fusedNodes)];
  });
}

/** What the node alone tells; shapes and masks it leaves open. */
function summary(node: NodeProto): AttentionSummary {
  return {
    nodes: [node.name],
    layer: intAttribute(node, 'layer', 0),
    scale: floatAttribute(node, 'scale', 1),
    heads: undefined,
    kvHeads: undefined,
    headSize: undefined,
    valueHeadSize: undefined,
    softcap: 0,
    selfAttention: true,
    maskKind: 'additive',
    hasCache: false,
  };
}
