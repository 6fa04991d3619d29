import { attributes, type NodeList } from '../model/build.js';
import { DataType } from '../model/index.js';

/** `mixed` with zeros in the rows whose keys a bias masks all: such a row has no probabilities (0 / 0). */
export function zeroWhereMasked(
  list: NodeList,
  bias: string,
  mixed: { readonly value: string; readonly type: DataType },
  output?: string,
): string {
  const masked = list.add('Equal', [highest(list, bias), list.float(-Infinity)]);
  const zero = list.cast(list.float(0), DataType.FLOAT, mixed.type);
  return list.add('Where', [masked, zero, mixed.value], [], output);
}

/** The highest element along the last axis, which stays with size 1. */
function highest(list: NodeList, value: string): string {
  if (list.opset >= 18) return list.add('ReduceMax', [value, list.ints(-1)]);
  return list.add('ReduceMax', [value], [attributes.ints('axes', [-1])]);
}
