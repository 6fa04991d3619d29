import { intsAttribute } from '../attributes.js';
import { type Fact, type NodeFacts, numbers } from '../facts.js';
import { type Dim, freshSymbol, type Scalar } from '../symbols.js';

/** The axis counted from the front. */
export function fromFront(axis: number, rank: number): number {
  return axis < 0 ? axis + rank : axis;
}

/** Axes given by an attribute in old operator sets, by an input in new ones. */
export function axesOf(at: NodeFacts, inputIndex = 1): number[] | undefined {
  return intsAttribute(at.node, 'axes') ?? numbers(at.input(inputIndex));
}

export function clamp(value: number, low: number, high: number): number {
  return Math.min(Math.max(value, low), high);
}

export function knownSizes(dims: readonly Dim[]): number[] | undefined {
  return dims.every((dim) => typeof dim === 'number') ? (dims as number[]) : undefined;
}

/** Sizes are never negative; a negative number takes no part in symbolic arithmetic. */
export function isDim(value: Scalar): value is Dim {
  return value !== null && !(typeof value === 'number' && (value < 0 || !Number.isInteger(value)));
}

/** A shape from the tensor that holds it. */
export function sizesFrom(fact: Fact): Dim[] | undefined {
  if (fact.values) return fact.values.map((value) => (isDim(value) ? value : freshSymbol()));
  const rank = fact.dims?.length === 1 ? fact.dims[0] : undefined;
  return typeof rank === 'number' && rank <= 16 ? Array.from({ length: rank }, freshSymbol) : undefined;
}
