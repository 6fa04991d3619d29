import { attributes, type NodeList } from '../model/build.js';

/** `mixed` with zeros in the rows whose keys a bias masks all: such a row has no probabilities (0 / 0). */
export function zeroWhereMasked(list: NodeList, bias: string, mixed: string, output: string): string {
  const masked = list.add('Equal', [highest(list, bias), list.float(-Infinity)]);
  return list.add('Where', [masked, list.float(0), mixed], [], output);
}

/** The highest element along the last axis, which stays with size 1. */
function highest(list: NodeList, value: string): string {
  if (list.opset >= 18) return list.add('ReduceMax', [value, list.ints(-1)]);
  return list.add('ReduceMax', [value], [attributes.ints('axes', [-1])]);
}
