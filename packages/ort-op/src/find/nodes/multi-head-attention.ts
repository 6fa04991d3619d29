import { attributes, type NodeList } from '../../model/build.js';
import { DataType, type GraphIndex, intAttribute, type NodeProto } from '../../model/index.js';
import type { Reading, Reason } from '../reading.js';
import { microsoftBias, microsoftScale } from './microsoft-mask.js';
import { inHeads, knownDim, preludeOf, sameDim, share, splitHeads, wholeNode, withPast } from './parts.js';

/**
 * com.microsoft MultiHeadAttention. Query, key and value are separate, or packed as [batch, length, heads, 3,
 * size], or key and value are packed as [batch, length, heads, 2, size] or already in heads.
 */
export function readMultiHeadAttention(graph: GraphIndex, node: NodeProto): Reading | Reason {
  const [query = '', key, value, projectionBias, padding, bias, pastKey, pastValue, pastLength, beams] =
    node.input;
  const [, presentKey, presentValue, scores] = node.output;
  if (beams) return { reason: 'its cache holds several beams' };
  if (scores) return { reason: 'its scores are an output' };
  const heads = intAttribute(node, 'num_heads', 0);
  const { dims, type } = graph.fact(query);
  const packed = dims?.length === 5;
  const headSize = share(knownDim(dims?.at(-1)), packed ? 1 : heads);
  if (headSize === undefined || heads <= 0) return { reason: 'its head size is unknown' };

  const list = preludeOf(graph, node);
  const parts = packed
    ? [0, 1, 2].map((index) =>
        unpack(list, query, index, projectionBias && { value: projectionBias, part: index, heads }),
      )
    : separate(graph, list, { query, key, value, bias: projectionBias }, heads);
  if (!parts) return { reason: 'its inputs are of an unknown form' };
  const [queries = '', newKeys = '', newValues = ''] = parts;
  const continued = pastLength
    ? (past: string | undefined, added: string, present: string | undefined) =>
        inBuffer(list, past ?? '', pastLength, added, present)
    : withPast.bind(undefined, list);
  const keys = continued(pastKey, newKeys, presentKey);
  const values = continued(pastValue, newValues, presentValue);
  const keyDims = graph.fact(key).dims;
  const together = packed || sameDim(dims?.[1], keyDims?.[keyDims.length === 4 ? 2 : 1]);
  const inputs = { padding, bias, past: pastKey, together };
  const terms = microsoftBias(graph, list, node, inputs, queries, keys);
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

/** The bias of all projections, of which a part is one of three. */
interface PackedBias {
  readonly value: string;
  readonly part: number;
  readonly heads: number;
}

/** One of the parts of [batch, length, heads, parts, size], as [batch, heads, length, size]. */
function unpack(list: NodeList, value: string, index: number, bias: PackedBias | '' | undefined): string {
  const part = list.transpose(list.pick(value, 3, index), [0, 2, 1, 3]);
  if (!bias) return part;
  const thirds = list.add('Reshape', [bias.value, list.ints(3, bias.heads, 1, -1)]);
  return list.add('Add', [part, list.pick(thirds, 0, bias.part)]);
}

/** Keys or values behind those of earlier runs, in a buffer that is longer than both. */
function inBuffer(
  list: NodeList,
  buffer: string,
  pastLength: string,
  added: string,
  present: string | undefined,
): string {
  const length = list.add('Reshape', [list.cast(pastLength, undefined, DataType.INT64), list.ints(1)]);
  const end = list.add('Add', [length, list.sizes(added, 2, 3)]);
  const part = (from: string, to: string) => list.add('Slice', [buffer, from, to, list.ints(2)]);
  const joined = (parts: string[], output?: string) =>
    list.add('Concat', parts, [attributes.int('axis', 2)], output);
  const all = joined([part(list.ints(0), length), added]);
  if (present) joined([all, part(end, list.ints(Number.MAX_SAFE_INTEGER))], present);
  return all;
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
  if (rank === 5 && !value) {
    return [
      queries,
      ...[0, 1].map((index) => unpack(list, key, index, bias && { value: bias, part: index + 1, heads })),
    ];
  }
  if (!value) return undefined;
  if (rank === 4) return [queries, key, value];
  return rank === 3 ? [queries, biased(key), biased(value)] : undefined;
}
