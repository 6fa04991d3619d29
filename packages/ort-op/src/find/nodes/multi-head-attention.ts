import type { NodeList } from '../../model/build.js';
import { type GraphIndex, intAttribute, type NodeProto } from '../../model/index.js';
import type { Reading, Reason } from '../reading.js';
import { microsoftBias, microsoftScale } from './microsoft-mask.js';
import { inHeads, knownDim, preludeOf, share, splitHeads, wholeNode, withPast } from './parts.js';

/**
 * com.microsoft MultiHeadAttention. Query, key and value are separate, or packed as [batch, length, heads, 3,
 * size], or key and value are packed as [batch, length, heads, 2, size] or already in heads.
 */
export function readMultiHeadAttention(graph: GraphIndex, node: NodeProto): Reading | Reason {
  const [query = '', key, value, projectionBias, padding, bias, pastKey, pastValue, pastLength, beams] =
    node.input;
  const [, presentKey, presentValue, scores] = node.output;
  if (pastLength || beams) return { reason: 'its cache is a shared buffer, not supported yet' };
  if (scores) return { reason: 'its scores are an output' };
  const heads = intAttribute(node, 'num_heads', 0);
  const { dims, type } = graph.fact(query);
  const packed = dims?.length === 5;
  const headSize = share(knownDim(dims?.at(-1)), packed ? 1 : heads);
  if (headSize === undefined || heads <= 0) return { reason: 'its head size is unknown' };

  const list = preludeOf(graph, node);
  const parts = packed
    ? [0, 1, 2].map((index) => unpack(list, query, index))
    : separate(graph, list, { query, key, value, bias: projectionBias }, heads);
  if (!parts) return { reason: 'its inputs are of an unknown form' };
  if (packed && projectionBias) return { reason: 'its packed projection has a bias, not supported yet' };
  const [queries = '', newKeys = '', newValues = ''] = parts;
  const keys = withPast(list, pastKey, newKeys, presentKey);
  const values = withPast(list, pastValue, newValues, presentValue);
  const terms = microsoftBias(graph, list, node, { padding, bias, past: pastKey }, queries, keys);
  if ('reason' in terms) return terms;
  const valueDims = graph.fact(value).dims;
  return {
    ...wholeNode(node),
    prelude: list.nodes,
    outputLayout: 'merged',
    query: inHeads(queries),
    key: inHeads(keys),
    value: inHeads(values),
    sources: [query, key || query, value || key || query],
    type,
    bias: terms,
    scale: microsoftScale(node, headSize),
    softcap: 0,
    heads,
    kvHeads: heads,
    headSize,
    valueHeadSize: valueDims?.length === 3 ? share(knownDim(valueDims[2]), heads) : headSize,
    hasCache: Boolean(pastKey),
  };
}

/** One of the parts of [batch, length, heads, parts, size], as [batch, heads, length, size]. */
function unpack(list: NodeList, value: string, index: number): string {
  return list.transpose(list.pick(value, 3, index), [0, 2, 1, 3]);
}

function separate(
  graph: GraphIndex,
  list: NodeList,
  inputs: Record<'query' | 'key' | 'value' | 'bias', string | undefined>,
  heads: number,
): string[] | undefined {
  const { query, key, value, bias } = inputs;
  if (!query || !key) return undefined;
  let start = 0;
  const biased = (each: string) => {
    const size = knownDim(graph.fact(each).dims?.at(-1)) ?? 0;
    const part = bias && list.slice(bias, 0, start, start + size);
    start += size;
    return splitHeads(list, part ? list.add('Add', [each, part]) : each, heads);
  };
  const queries = biased(query);
  const rank = graph.fact(key).dims?.length;
  if (rank === 5 && !value) return [queries, unpack(list, key, 0), unpack(list, key, 1)];
  if (!value) return undefined;
  if (rank === 4) return [queries, key, value];
  return rank === 3 ? [queries, biased(key), biased(value)] : undefined;
}
