import { attributes, type NodeList } from '../../model/build.js';
import { DataType, type GraphIndex } from '../../model/index.js';
import type { BiasTerm } from '../types.js';
import { addTerm, bandTerms, maskTerm, range, withPast } from './parts.js';

/** Keys or values of a GroupQueryAttention, in heads. */
export interface CachedPart {
  readonly past: string | undefined;
  readonly added: string;
  /** The name that the model gives both together. */
  readonly present: string | undefined;
}

/** What of a GroupQueryAttention says which keys its queries see. */
export interface CachedTokens {
  readonly queries: string;
  readonly key: CachedPart;
  readonly value: CachedPart;
  /** [1]: new tokens. */
  readonly length: string;
  /** [1]: tokens of the longest entry of the batch. */
  readonly totalLength: string;
  /** [batch, 1]: tokens of each entry after this run, less one; and those before it. */
  readonly counts: string;
  readonly cached: string;
  /** [batch, query length]. */
  readonly positions: string;
  readonly causal: boolean;
  /** Keys that a query sees, with its own; none for all. */
  readonly window: number | undefined;
  readonly bias: string | undefined;
}

/** All keys and values, and what is added to their scores. */
export interface CachedOperands {
  readonly keys: string;
  readonly values: string;
  readonly terms: readonly BiasTerm[];
}

/** With the new tokens of each entry put behind those that it has already, in a cache that may have room for more. */
export function inPaddedCache(graph: GraphIndex, list: NodeList, tokens: CachedTokens): CachedOperands {
  const { key, value, length, totalLength, counts, cached, positions, causal, window, bias } = tokens;
  const cacheLength = key.past ? list.sizes(key.past, 2, 3) : list.ints(0);
  const wholeLength = list.add('Max', [cacheLength, totalLength]);
  // [1, key length].
  const places = list.unsqueeze(range(list, list.pick(wholeLength, 0, 0)), 0);
  const cache = { cached, cacheLength, length, places };
  const [keys, values] = [placed(list, key, cache), placed(list, value, cache)];

  const at = list.unsqueeze(list.unsqueeze(positions, 1), 3);
  const last = causal ? at : list.unsqueeze(list.unsqueeze(counts, 1), 3);
  const masks = [list.add('Greater', [places, last])];
  if (window !== undefined)
    masks.push(list.add('Less', [places, list.add('Sub', [at, list.int(window - 1)])]));
  const terms = masks.map((mask) => maskTerm(mask, ['batch', 1, 'queries', 'keys']));
  if (bias) terms.push(wideBias(graph, list, bias, wholeLength));
  return { keys, values, terms };
}

/** With the new tokens behind the past ones, which fill their cache. */
export function inFullCache(graph: GraphIndex, list: NodeList, tokens: CachedTokens): CachedOperands {
  const { queries, key, value, causal, window, bias } = tokens;
  const joined = ({ past, added, present }: CachedPart) => withPast(list, past, added, present);
  const [keys, values] = [joined(key), joined(value)];
  const band = { left: window === undefined ? -1 : window - 1, right: causal ? 0 : -1 };
  const terms = bandTerms(list, queries, keys, band);
  if (bias) terms.push(addTerm(bias, graph.fact(bias).type, graph.fact(bias).dims));
  return { keys, values, terms };
}

/** The bias with zeros for the places of the cache behind those it is given for; causality masks them. */
function wideBias(graph: GraphIndex, list: NodeList, bias: string, length: string): BiasTerm {
  const { type, dims } = graph.fact(bias);
  const numbers = list.cast(bias, type, DataType.FLOAT);
  const missing = list.add('Sub', [length, list.sizes(numbers, 3, 4)]);
  const padded = list.add('Pad', [numbers, list.concat(list.ints(0, 0, 0, 0, 0, 0, 0), missing)]);
  return addTerm(padded, DataType.FLOAT, dims);
}

/** The cache with the new tokens put behind those that each entry of the batch has already. */
function placed(
  list: NodeList,
  { past, added, present }: CachedPart,
  { cached, cacheLength, length, places }: Record<'cached' | 'cacheLength' | 'length' | 'places', string>,
): string {
  const all = past ? list.add('Concat', [past, added], [attributes.int('axis', 2)]) : added;
  const behind = list.add('Add', [cacheLength, list.add('Sub', [places, cached])]);
  const last = list.add('Sub', [list.add('Add', [cacheLength, length]), list.int(1)]);
  const source = list.add('Where', [
    list.add('Less', [places, cached]),
    places,
    list.add('Min', [behind, last]),
  ]);
  const perHead = list.unsqueeze(list.unsqueeze(source, 1), 3);
  const shape = list.concat(list.sizes(all, 0, 2), list.ints(1, 1));
  const indices = list.add('Expand', [perHead, shape]);
  return list.add('GatherND', [all, indices], [attributes.int('batch_dims', 2)], present || undefined);
}
