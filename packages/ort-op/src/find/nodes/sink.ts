import type { NodeList } from '../../model/build.js';
import { DataType, type GraphIndex } from '../../model/index.js';
import type { BiasTerm } from '../types.js';
import { addTerm } from './parts.js';

/**
 * A sink is one more key, of zeros and with a value of zeros, whose score is the sink: it takes its share of the
 * softmax and adds nothing. Without a tensor of sinks they are 0.
 */
export function withSink(
  graph: GraphIndex,
  list: NodeList,
  { keys, values, terms }: { keys: string; values: string; terms: readonly BiasTerm[] },
  sink: string | undefined,
): { keys: string; values: string; terms: BiasTerm[] } {
  const oneMore = (value: string) => list.add('Pad', [value, list.ints(0, 0, 0, 0, 0, 0, 1, 0)]);
  const wider = ({ kind, value, ...rest }: BiasTerm): BiasTerm => {
    const numbers = kind === 'add' ? value : list.add('Where', [value, list.float(-Infinity), list.float(0)]);
    const padded = list.add('Pad', [numbers, list.ints(0, 0, 0, 0, 0, 0, 0, 1)]);
    return { ...rest, kind: 'add', value: padded, type: DataType.FLOAT };
  };
  const widened = terms.map(wider);
  const sunk = { keys: oneMore(keys), values: oneMore(values), terms: widened };
  if (!sink) return sunk;
  const column = list.add('Reshape', [
    list.cast(sink, graph.fact(sink).type, DataType.FLOAT),
    list.ints(1, -1, 1, 1),
  ]);
  const before = list.concat(list.ints(0, 0, 0), list.sizes(keys, 2, 3), list.ints(0, 0, 0, 0));
  const row = list.add('Pad', [column, before]);
  return { ...sunk, terms: [...widened, addTerm(row, DataType.FLOAT, [1, 'heads', 1, 'keys'])] };
}
