import { attributes } from '../../model/build.js';
import {
  DataType,
  floatAttribute,
  type GraphIndex,
  intAttribute,
  type NodeProto,
} from '../../model/index.js';
import type { Reading, Reason } from '../reading.js';
import type { ReadOptions } from '../types.js';
import { inFullCache, inPaddedCache } from './group-query-cache.js';
import { microsoftScale } from './microsoft-mask.js';
import { inHeads, knownDim, preludeOf, range, share, splitHeads, wholeNode } from './parts.js';
import { rotate } from './rotation.js';
import { withSink } from './sink.js';

/**
 * com.microsoft GroupQueryAttention: causal attention whose cache holds, for each entry of the batch, as many
 * tokens as `seqlens_k` says. The cache may be longer than that; what is behind those tokens is never read.
 */
export function readGroupQueryAttention(
  graph: GraphIndex,
  node: NodeProto,
  { unpaddedCaches = false }: ReadOptions,
): Reading | Reason {
  const [query = '', key, value, pastKey, pastValue, lengths, total, cos, sin, ...more] = node.input;
  const [rotaryPositions, bias, sink, keyScale, valueScale, queryNorm, keyNorm] = more;
  const [, presentKey, presentValue, scores] = node.output;
  const obstacle = unsupportedFeature(node, Boolean(keyScale || valueScale), scores);
  if (obstacle) return { reason: obstacle };
  const [heads, kvHeads] = [intAttribute(node, 'num_heads', 0), intAttribute(node, 'kv_num_heads', 0)];
  const { dims, type } = graph.fact(query);
  const packed = !key;
  const headSize = share(knownDim(dims?.at(-1)), packed ? heads + 2 * kvHeads : heads);
  if (headSize === undefined || heads <= 0 || kvHeads <= 0) return { reason: 'its head size is unknown' };
  if (!lengths || !total) return { reason: 'it lacks an input' };

  const list = preludeOf(graph, node);
  const packedPart = (start: number, count: number) =>
    splitHeads(list, list.slice(query, 2, start * headSize, (start + count) * headSize), count);
  const [queries, newKeys, newValues] = packed
    ? [packedPart(0, heads), packedPart(heads, kvHeads), packedPart(heads + kvHeads, kvHeads)]
    : [
        splitHeads(list, query, heads),
        splitHeads(list, key, kvHeads),
        splitHeads(list, value ?? '', kvHeads),
      ];

  const length = list.sizes(queries, 2, 3);
  // [batch, 1]: tokens in the cache before this run.
  const counts = list.unsqueeze(list.cast(lengths, undefined, DataType.INT64), 1);
  const counted = list.add('Sub', [list.add('Add', [counts, list.int(1)]), length]);
  const cached = list.add('Max', [counted, list.int(0)]);
  // [batch, query length]: positions of the queries.
  const steps = list.unsqueeze(range(list, list.pick(length, 0, 0)), 0);
  const positions = list.add('Add', [cached, steps]);
  const totalLength = list.add('Reshape', [list.cast(total, undefined, DataType.INT64), list.ints(1)]);
  // Of positions that it is given, the operator reads the first alone where there is nothing in the cache.
  const angles = rotaryPositions
    ? list.add('Where', [
        list.add('Equal', [length, totalLength]),
        list.add('Add', [list.slice(list.slice(rotaryPositions, 0, 0, 1), 1, 0, 1), steps]),
        rotaryPositions,
      ])
    : positions;

  const normalized = (each: string, gain: string | undefined) => {
    if (!gain) return each;
    const epsilon = attributes.float('epsilon', floatAttribute(node, 'qk_norm_epsilon', 1e-6));
    return list.add('SimplifiedLayerNormalization', [each, gain], [attributes.int('axis', -1), epsilon]);
  };
  const rotated = (each: string) => {
    if (intAttribute(node, 'do_rotary', 0) === 0 || !cos || !sin) return each;
    const half = knownDim(graph.fact(cos).dims?.at(-1)) ?? headSize / 2;
    const interleaved = intAttribute(node, 'rotary_interleaved', 0) === 1;
    return rotate(list, each, angles, { cos, sin, half, headSize, interleaved });
  };
  const window = intAttribute(node, 'local_window_size', -1);
  const tokens = {
    queries,
    key: { past: pastKey, added: rotated(normalized(newKeys, keyNorm)), present: presentKey },
    value: { past: pastValue, added: newValues, present: presentValue },
    length,
    totalLength,
    counts,
    cached,
    positions,
    causal: intAttribute(node, 'causal', 1) === 1,
    window: window < 0 ? undefined : window,
    bias,
  };
  const hasSink = Boolean(sink) || intAttribute(node, 'smooth_softmax', 0) === 1;
  // The lengths in a body are not known outside, and a sink is one more key behind the cache.
  const full = unpaddedCaches && Boolean(pastKey && pastValue) && !graph.outer && !hasSink;
  const cache = full ? inFullCache(graph, list, tokens) : inPaddedCache(graph, list, tokens);
  const sunk = hasSink ? withSink(graph, list, cache, sink) : cache;
  return {
    ...wholeNode(node),
    prelude: list.nodes,
    outputLayout: 'merged',
    query: inHeads(rotated(normalized(queries, queryNorm))),
    key: inHeads(sunk.keys),
    value: inHeads(sunk.values),
    sources: [query, key || query, value || query],
    type,
    bias: sunk.terms,
    scale: microsoftScale(node, headSize),
    softcap: floatAttribute(node, 'softcap', 0),
    heads,
    kvHeads,
    headSize,
    valueHeadSize: headSize,
    hasCache: Boolean(pastKey),
    ...(full ? { tokenCounts: lengths } : {}),
  };
}

function unsupportedFeature(
  node: NodeProto,
  quantized: boolean,
  scores: string | undefined,
): string | undefined {
  if (scores) return 'its scores are an output';
  if (quantized) return 'its cache is quantized, not supported yet';
  if (intAttribute(node, 'sliding_window_cache', 0) === 1)
    return 'its cache is a sliding window, not supported yet';
  if (intAttribute(node, 'causal', 1) === 0 && intAttribute(node, 'local_window_size', -1) >= 0)
    return 'it has a window without being causal, not supported yet';
  return undefined;
}
