import { attributes, type NodeList } from '../../model/build.js';
import {
  DataType,
  floatAttribute,
  type GraphIndex,
  intAttribute,
  type NodeProto,
} from '../../model/index.js';
import type { Reading, Reason } from '../reading.js';
import type { Band, BiasTerm } from '../types.js';
import {
  addTerm,
  inHeads,
  keepTerm,
  keyPositions,
  knownDim,
  maskTerm,
  preludeOf,
  queryPositions,
  sameDim,
  share,
  splitHeads,
  wholeNode,
  withPast,
} from './parts.js';

/** ai.onnx Attention, versions 23 to 25. */
export function readAttention(graph: GraphIndex, node: NodeProto): Reading | Reason {
  const [query = '', key = '', value = '', mask, pastKey, pastValue, lengths] = node.input;
  const [, presentKey, presentValue, scores] = node.output;
  if (scores) return { reason: 'its scores or probabilities are an output' };
  const precision = intAttribute(node, 'softmax_precision', DataType.FLOAT);
  if (precision !== DataType.FLOAT) return { reason: 'its softmax is not computed in float32' };

  const list = preludeOf(graph, node);
  const facts = [query, key, value].map((each) => graph.fact(each));
  const rank = facts[0]?.dims?.length;
  const [heads, kvHeads] = [
    intAttribute(node, 'q_num_heads', knownDim(facts[0]?.dims?.[1])),
    intAttribute(node, 'kv_num_heads', knownDim(facts[2]?.dims?.[1])),
  ];
  if (rank !== 4 && (rank !== 3 || !heads || !kvHeads || heads < 0 || kvHeads < 0)) {
    return { reason: 'the shape of its query is unknown' };
  }
  const merged = rank === 3;
  const split = (each: string, count: number | undefined) =>
    merged ? splitHeads(list, each, count ?? 1) : each;
  const size = (index: number, count: number | undefined) => {
    const last = knownDim(facts[index]?.dims?.at(-1));
    return merged ? share(last, count ?? 1) : last;
  };
  const headSize = size(0, heads);
  const scale = floatAttribute(node, 'scale', headSize === undefined ? undefined : 1 / Math.sqrt(headSize));
  if (scale === undefined) return { reason: 'its head size, and so its scale, is unknown' };

  const queries = split(query, heads);
  const keys = withPast(list, pastKey, split(key, kvHeads), presentKey);
  const values = withPast(list, pastValue, split(value, kvHeads), presentValue);
  const bias: BiasTerm[] = [];
  if (mask) bias.push(maskInput(graph, list, mask, keys, pastKey ? undefined : facts[1]?.dims?.at(-2)));
  const together = sameDim(facts[0]?.dims?.at(-2), facts[1]?.dims?.at(-2));
  bias.push(...positionTerms(list, node, { query: queries, key: keys, pastKey, lengths, together }));
  return {
    ...wholeNode(node),
    prelude: list.nodes,
    outputLayout: merged ? 'merged' : 'heads',
    query: inHeads(queries),
    key: inHeads(keys),
    value: inHeads(values),
    sources: [query, key, value],
    type: facts[0]?.type,
    bias,
    scale,
    softcap: floatAttribute(node, 'softcap', 0),
    heads,
    kvHeads,
    headSize,
    valueHeadSize: size(2, kvHeads),
    hasCache: Boolean(pastKey),
  };
}

/** The mask input. A mask that ends before the keys do masks the rest of them. */
function maskInput(
  graph: GraphIndex,
  list: NodeList,
  mask: string,
  keys: string,
  keyLength: number | string | undefined,
): BiasTerm {
  const { type, dims = [] } = graph.fact(mask);
  const boolean = type === DataType.BOOL;
  const last = dims.at(-1);
  if (typeof last !== 'number' || last === keyLength) {
    return boolean ? keepTerm(mask, dims) : addTerm(mask, type, dims);
  }
  const additive = boolean
    ? list.add('Where', [mask, list.float(0), list.float(-Infinity)])
    : list.cast(mask, type, DataType.FLOAT);
  const missing = list.add('Sub', [list.sizes(keys, 2, 3), list.sizes(mask, dims.length - 1, dims.length)]);
  const noPadding = list.ints(...Array<number>(2 * dims.length - 1).fill(0));
  const padded = list.add(
    'Pad',
    [additive, list.concat(noPadding, missing), list.float(-Infinity)],
    [attributes.string('mode', 'constant')],
  );
  return addTerm(padded, DataType.FLOAT, dims);
}

/** Causality, windows and the lengths of caches: all that masks by position. */
function positionTerms(
  list: NodeList,
  node: NodeProto,
  values: {
    query: string;
    key: string;
    pastKey: string | undefined;
    lengths: string | undefined;
    /** As many new keys as queries: the last query stands at the last key. */
    together: boolean;
  },
): BiasTerm[] {
  const { query, key, pastKey, lengths, together } = values;
  const causal = intAttribute(node, 'is_causal', 0) === 1;
  const left = intAttribute(node, 'left_window_size', -1);
  const right = intAttribute(node, 'right_window_size', -1);
  if (!causal && left < 0 && right < 0 && !lengths) return [];
  const keys = keyPositions(list, key);
  const filled = lengths && list.add('Reshape', [lengths, list.ints(-1, 1, 1, 1)]);
  const offset = pastKey
    ? list.sizes(pastKey, 2, 3)
    : filled && list.add('Sub', [filled, list.sizes(query, 2, 3)]);
  const dims = filled ? ['batch', 1, 'queries', 'keys'] : ['queries', 'keys'];
  const terms: BiasTerm[] = [];
  const mask = (value: string, band?: Band) =>
    terms.push(maskTerm(value, dims, together && !filled ? band : undefined));
  if (causal || left >= 0 || right >= 0) {
    const queries = queryPositions(list, query, offset);
    if (causal) mask(list.add('Greater', [keys, queries]), { left: -1, right: 0 });
    if (right >= 0) {
      mask(list.add('Greater', [keys, list.add('Add', [queries, list.int(right)])]), { left: -1, right });
    }
    if (left >= 0) {
      mask(list.add('Less', [keys, list.add('Sub', [queries, list.int(left)])]), { left, right: -1 });
    }
  }
  if (filled) mask(list.add('Not', [list.add('Less', [keys, filled])]));
  return terms;
}
