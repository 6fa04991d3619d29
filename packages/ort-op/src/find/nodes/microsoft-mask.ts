import type { NodeList } from '../../model/build.js';
import {
  DataType,
  floatAttribute,
  type GraphIndex,
  intAttribute,
  type NodeProto,
} from '../../model/index.js';
import type { Reason } from '../reading.js';
import type { BiasTerm } from '../types.js';
import { addTerm, keyPositions, maskTerm, queryPositions } from './parts.js';

/** What com.microsoft operators add to the scores: padding, a bias, causality. */
export function microsoftBias(
  graph: GraphIndex,
  list: NodeList,
  node: NodeProto,
  inputs: {
    padding: string | undefined;
    bias: string | undefined;
    past: string | undefined;
    /** As many new keys as queries. */
    together: boolean;
  },
  query: string,
  key: string,
): BiasTerm[] | Reason {
  const terms: BiasTerm[] = [];
  if (inputs.padding) {
    const { dims } = graph.fact(inputs.padding);
    const lengths = dims?.length === 1 && dims[0] === graph.fact(node.input[0]).dims?.[0];
    if (!lengths && dims?.length !== 2 && dims?.length !== 3) {
      return { reason: 'its padding is not given as a mask or as the number of keys' };
    }
    const keep = lengths
      ? list.add('Less', [
          keyPositions(list, key),
          list.unsqueeze(list.cast(inputs.padding, undefined, DataType.INT64), 1),
        ])
      : list.cast(inputs.padding, undefined, DataType.BOOL);
    // The filter value is added, so that a row with every key masked still weighs them by their scores.
    const filter = list.float(floatAttribute(node, 'mask_filter_value', -10000));
    const additive = list.add('Where', [keep, list.float(0), filter]);
    const perQuery = dims.length === 3;
    const perHead = list.unsqueeze(perQuery ? additive : list.unsqueeze(additive, 1), 1);
    terms.push(addTerm(perHead, DataType.FLOAT, ['batch', 1, perQuery ? 'queries' : 1, 'keys']));
  }
  if (inputs.bias) {
    const { type, dims } = graph.fact(inputs.bias);
    terms.push(addTerm(inputs.bias, type, dims));
  }
  if (intAttribute(node, 'unidirectional', 0) === 1) {
    const offset = inputs.past && list.add('Sub', [list.sizes(key, 2, 3), list.sizes(query, 2, 3)]);
    const future = list.add('Greater', [keyPositions(list, key), queryPositions(list, query, offset)]);
    const atEnd = inputs.past || inputs.together;
    terms.push(maskTerm(future, ['queries', 'keys'], atEnd ? { left: -1, right: 0 } : undefined));
  }
  return terms;
}

/** The scale attribute; 0 or nothing stands for 1 / sqrt(head size). */
export function microsoftScale(node: NodeProto, headSize: number): number {
  return floatAttribute(node, 'scale', 0) || 1 / Math.sqrt(headSize);
}
