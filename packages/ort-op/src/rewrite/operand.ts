import type { Operand } from '../find/index.js';
import type { NodeList } from '../model/build.js';

/** The operand as a value of its own, [batch, heads, length, size]. */
export function operandValue(list: NodeList, { value, permutation }: Operand): string {
  const plain = permutation.every((from, axis) => from === axis);
  const ordered = plain ? value : list.transpose(value, permutation);
  return permutation.length === 3 ? list.unsqueeze(ordered, 1) : ordered;
}

/** The sizes of the operand's batch and heads. */
export function batchAndHeads(
  list: NodeList,
  { value, permutation }: Operand,
): [batch: string, heads: string] {
  const heads = permutation.length === 3 ? list.ints(1) : axisSize(list, value, permutation[1] ?? 1);
  return [axisSize(list, value, permutation[0] ?? 0), heads];
}

/** The size of the axis before the operand's last one. */
export function lengthOf(list: NodeList, { value, permutation }: Operand): string {
  return axisSize(list, value, permutation.at(-2) ?? 0);
}

function axisSize(list: NodeList, value: string, axis: number): string {
  return list.sizes(value, axis, axis + 1);
}
