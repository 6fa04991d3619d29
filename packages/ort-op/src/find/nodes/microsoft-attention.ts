import { attributes } from '../../model/build.js';
import { type GraphIndex, intAttribute, intsAttribute, type NodeProto } from '../../model/index.js';
import type { Reading, Reason } from '../reading.js';
import { microsoftBias, microsoftScale } from './microsoft-mask.js';
import { inHeads, knownDim, preludeOf, share, splitHeads, wholeNode, withPast } from './parts.js';

/** com.microsoft Attention: the projections of query, key and value are part of the node. */
export function readMicrosoftAttention(graph: GraphIndex, node: NodeProto): Reading | Reason {
  const [input = '', weights = '', projectionBias, padding, past, bias, pastLength] = node.input;
  const present = node.output[1];
  const heads = intAttribute(node, 'num_heads', 0);
  const third = share(knownDim(graph.fact(weights).dims?.at(-1)), 3) ?? 0;
  const sizes = intsAttribute(node, 'qkv_hidden_sizes') ?? [third, third, third];
  const [querySize = 0, keySize = 0, valueSize = 0] = sizes;
  const [headSize, keyHeadSize, valueHeadSize] = sizes.map((size) => share(size, heads));
  if (headSize === undefined || keyHeadSize !== headSize || valueHeadSize === undefined) {
    return { reason: 'its head size is unknown' };
  }
  if (intAttribute(node, 'do_rotary', 0) !== 0)
    return { reason: 'it rotates its query and key, not supported yet' };
  if (pastLength) return { reason: 'its cache is a shared buffer, not supported yet' };

  const list = preludeOf(graph, node);
  const product = list.add('MatMul', [input, weights]);
  const projected = projectionBias ? list.add('Add', [product, projectionBias]) : product;
  const part = (start: number, size: number) =>
    splitHeads(list, list.slice(projected, 2, start, start + size), heads);
  const queries = part(0, querySize);
  // The cache holds keys and values in one tensor.
  const keys = withPast(list, past && list.pick(past, 0, 0), part(querySize, keySize), undefined);
  const values = withPast(
    list,
    past && list.pick(past, 0, 1),
    part(querySize + keySize, valueSize),
    undefined,
  );
  if (present) {
    list.add(
      'Concat',
      [list.unsqueeze(keys, 0), list.unsqueeze(values, 0)],
      [attributes.int('axis', 0)],
      present,
    );
  }
  const terms = microsoftBias(graph, list, node, { padding, bias, past, together: true }, queries, keys);
  if ('reason' in terms) return terms;
  return {
    ...wholeNode(node),
    prelude: list.nodes,
    outputLayout: 'merged',
    query: inHeads(queries),
    key: inHeads(keys),
    value: inHeads(values),
    sources: [input, input, input],
    type: graph.fact(input).type,
    bias: terms,
    scale: microsoftScale(node, headSize),
    softcap: 0,
    heads,
    kvHeads: heads,
    headSize,
    valueHeadSize,
    hasCache: Boolean(past),
  };
}
