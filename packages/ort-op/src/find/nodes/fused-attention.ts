import { bandOf, noBias } from '../../model/fused-operator.js';
import { DataType, floatAttribute, type GraphIndex, type NodeProto } from '../../model/index.js';
import type { Reading } from '../reading.js';
import { addTerm, bandTerms, inHeads, knownDim, preludeOf, wholeNode } from './parts.js';

/** FusedAttention itself, in a model that is converted already. */
export function readFusedAttention(graph: GraphIndex, node: NodeProto): Reading {
  const [query = '', key = '', value = '', bias = ''] = node.input;
  const [queryFact, valueFact, biasFact] = [query, value, bias].map((each) => graph.fact(each));
  const list = preludeOf(graph, node);
  const band = bandTerms(list, query, key, bandOf(node));
  const added = bias === noBias ? [] : [addTerm(bias, biasFact?.type, biasFact?.dims)];
  return {
    ...wholeNode(node),
    prelude: list.nodes,
    outputLayout: 'heads',
    query: inHeads(query),
    key: inHeads(key),
    value: inHeads(value),
    sources: [query, key, value],
    type: queryFact?.type ?? DataType.FLOAT,
    bias: [...added, ...band],
    scale: floatAttribute(node, 'scale', 1),
    softcap: floatAttribute(node, 'softcap', 0),
    heads: knownDim(queryFact?.dims?.[1]),
    kvHeads: knownDim(valueFact?.dims?.[1]),
    headSize: knownDim(queryFact?.dims?.[3]),
    valueHeadSize: knownDim(valueFact?.dims?.[3]),
  };
}
