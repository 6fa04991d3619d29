import { scalar } from '../model/facts.js';
import { type GraphIndex, intsAttribute, isComputed, type NodeProto } from '../model/index.js';
import { axesOf, fromFront } from '../model/rules/axes.js';
import type { Operand } from './types.js';

/** An operand together with the factor the model multiplies it by. */
export interface ScaledOperand extends Operand {
  readonly scale: number;
}

/** One step from an operand towards where it comes from, leaving out a node; undefined where it does not apply. */
type OperandStep = (graph: GraphIndex, node: NodeProto, operand: ScaledOperand) => ScaledOperand | undefined;

/** The steps from a value, whose factor is none of the scores'. */
export const valueSteps: readonly OperandStep[] = [same, transposed, folded];
/** The steps from a query or a key. */
export const querySteps: readonly OperandStep[] = [...valueSteps, scaled];

/**
 * Walks from the operand of a matrix product back over the nodes that attention itself takes care of: the
 * scale, the transposition of the key, folding batch and heads into one axis. The result has the operand's
 * first shape again, [batch, heads, length, size].
 */
export function traceOperand(
  graph: GraphIndex,
  start: Operand,
  steps: readonly OperandStep[],
): ScaledOperand {
  let current: ScaledOperand = { ...start, scale: 1 };
  let best = current;
  const rank = start.permutation.length;
  for (;;) {
    const node = graph.producer(current.value);
    const next = node && firstOf(steps, (step) => step(graph, node, current));
    if (!next) return best;
    current = next;
    // Between the two Reshape nodes of a folded transposition the operand has another rank.
    if (current.permutation.length === rank && keepsShape(graph, start, current)) best = current;
  }
}

/** The operand in four axes, where a model folds batch and heads into one; undefined where it has no such form. */
export function unfoldOperand(
  graph: GraphIndex,
  start: Operand,
  steps: readonly OperandStep[],
): ScaledOperand | undefined {
  let current: ScaledOperand = { ...start, scale: 1 };
  while (current.permutation.length !== 4) {
    const node = graph.producer(current.value);
    const next = node && firstOf(steps, (step) => step(graph, node, current));
    if (!next) return undefined;
    current = next;
  }
  const rest = traceOperand(graph, current, steps);
  return { ...rest, scale: rest.scale * current.scale };
}

export function identity(rank: number): number[] {
  return Array.from({ length: rank }, (_, axis) => axis);
}

/** The permutation that swaps the last two axes. */
export function swapLastTwo(rank: number): number[] {
  return [...identity(rank - 2), rank - 1, rank - 2];
}

export function isIdentity(permutation: readonly number[]): boolean {
  return permutation.every((from, axis) => from === axis);
}

/** The first result that is not undefined. */
export function firstOf<T, R>(items: readonly T[], attempt: (item: T) => R | undefined): R | undefined {
  for (const item of items) {
    const result = attempt(item);
    if (result !== undefined) return result;
  }
  return undefined;
}

function keepsShape(graph: GraphIndex, a: Operand, b: Operand): boolean {
  const [first, second] = [shapeOf(graph, a), shapeOf(graph, b)];
  return first !== undefined && second !== undefined && first.every((dim, axis) => dim === second[axis]);
}

function shapeOf(graph: GraphIndex, operand: Operand) {
  const dims = graph.fact(operand.value).dims;
  return dims && operand.permutation.map((axis) => dims[axis]);
}

/** A Cast between the types that attention is computed in: what lies between is float32 then. */
export function isInnerCast(graph: GraphIndex, node: NodeProto): boolean {
  const [from, to] = [graph.fact(node.input[0]).type, graph.fact(node.output[0]).type];
  return node.opType === 'Cast' && (from === to || (isComputed(from) && isComputed(to)));
}

function same(graph: GraphIndex, node: NodeProto, operand: ScaledOperand): ScaledOperand | undefined {
  const input = node.input[0];
  const plain =
    node.opType === 'Identity' ||
    (node.opType === 'Cast' && graph.fact(input).type === graph.fact(node.output[0]).type);
  return plain && input ? { ...operand, value: input } : undefined;
}

function scaled(graph: GraphIndex, node: NodeProto, operand: ScaledOperand): ScaledOperand | undefined {
  const found = scaledInput(graph, node);
  return found && { ...operand, value: found.value, scale: operand.scale * found.factor };
}

/** The other input of a Mul or Div by a constant number, with the factor. */
export function scaledInput(
  graph: GraphIndex,
  node: NodeProto,
): { value: string; factor: number } | undefined {
  const [a, b] = node.input;
  if (!a || !b) return undefined;
  const [first, second] = [scalar(graph.fact(a)), scalar(graph.fact(b))];
  if (node.opType === 'Div' && second !== undefined) return { value: a, factor: 1 / second };
  if (node.opType !== 'Mul') return undefined;
  if (second !== undefined) return { value: a, factor: second };
  return first === undefined ? undefined : { value: b, factor: first };
}

/** A Transpose, as long as there is a permutation left to undo. */
function transposed(_: GraphIndex, node: NodeProto, operand: ScaledOperand): ScaledOperand | undefined {
  const permutation = node.opType === 'Transpose' ? intsAttribute(node, 'perm') : undefined;
  if (permutation?.length !== operand.permutation.length || isIdentity(operand.permutation)) return undefined;
  return {
    ...operand,
    value: node.input[0] ?? '',
    permutation: operand.permutation.map((axis) => permutation[axis] ?? axis),
  };
}

/** A Reshape that only folds or unfolds the axes before the last two. */
function folded(graph: GraphIndex, node: NodeProto, operand: ScaledOperand): ScaledOperand | undefined {
  const input = node.input[0];
  if (node.opType !== 'Reshape' || !input) return undefined;
  const [from, to] = [graph.fact(input).dims, graph.fact(node.output[0]).dims];
  if (!from || !to || from.length < 3 || to.length < 3 || !sameLastTwo(from, to)) return undefined;
  if (isIdentity(operand.permutation))
    return { ...operand, value: input, permutation: identity(from.length) };
  const swap = swapLastTwo(to.length).every((axis, index) => axis === operand.permutation[index]);
  return swap ? { ...operand, value: input, permutation: swapLastTwo(from.length) } : undefined;
}

/** Whether two shapes end in the same two sizes. */
export function sameLastTwo<T>(a: readonly T[], b: readonly T[]): boolean {
  return a.at(-1) === b.at(-1) && a.at(-2) === b.at(-2);
}

/** The key or value before each of its heads is repeated for the query heads that share it. */
export function beforeRepeat(graph: GraphIndex, value: string): { value: string; times: number } | undefined {
  const reshape = graph.producer(value);
  if (reshape?.opType !== 'Reshape') return undefined;
  const expand = graph.producer(reshape.input[0] ?? '');
  if (expand?.opType !== 'Expand') return undefined;
  const unsqueeze = graph.producer(expand.input[0] ?? '');
  if (unsqueeze?.opType !== 'Unsqueeze') return undefined;
  const original = unsqueeze.input[0] ?? '';
  const before = graph.fact(original).dims;
  const expanded = graph.fact(expand.output[0]).dims;
  const after = graph.fact(value).dims;
  const axes = axesOf({ node: unsqueeze, opset: 0, input: (index) => graph.fact(unsqueeze.input[index]) });
  if (before?.length !== 4 || expanded?.length !== 5 || after?.length !== 4) return undefined;
  if (axes?.length !== 1 || fromFront(axes[0] ?? 0, 5) !== 2) return undefined;
  const [kvHeads, times, heads] = [before[1], expanded[2], after[1]];
  if (typeof kvHeads !== 'number' || typeof times !== 'number' || heads !== kvHeads * times) return undefined;
  const others = [0, 2, 3].every((axis) => before[axis] === after[axis]);
  return others && expanded[1] === kvHeads ? { value: original, times } : undefined;
}
