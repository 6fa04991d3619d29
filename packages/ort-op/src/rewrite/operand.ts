import type { Operand } from '../find/index.js';
import { attributes, type NodeList } from '../model/build.js';

/** The operand as a value of its own, through a Transpose where the model has its axes in another order. */
export function operandValue(list: NodeList, { value, permutation }: Operand): string {
  if (permutation.every((from, axis) => from === axis)) return value;
  return list.add('Transpose', [value], [attributes.ints('perm', permutation)]);
}
