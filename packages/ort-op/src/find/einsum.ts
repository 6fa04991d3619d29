import { type NodeProto, stringAttribute } from '../model/index.js';
import type { Operand } from './types.js';

/** The letters of the axes of two factors and of their product. */
interface Equation {
  readonly first: string;
  readonly second: string;
  readonly result: string;
}

/** query, key -> scores as an Einsum, whatever the order of its axes. */
export function scoresEinsum(node: NodeProto): { query: Operand; key: Operand } | undefined {
  const equation = equationOf(node);
  const [query, key] = node.input;
  if (!equation || !query || !key) return undefined;
  const { first, second, result } = equation;
  const [queries, keys] = [result.at(-2) ?? '', result.at(-1) ?? ''];
  const batch = result.slice(0, -2);
  const contracted = [...first].filter((letter) => !result.includes(letter)).join('');
  const wanted = { query: batch + queries + contracted, key: batch + keys + contracted };
  if (!isOrderOf(wanted.query, first) || !isOrderOf(wanted.key, second)) return undefined;
  return {
    query: { value: query, permutation: permutation(wanted.query, first) },
    key: { value: key, permutation: permutation(wanted.key, second) },
  };
}

/** probabilities, value -> output as an Einsum. The order of the output's axes comes with it. */
export function outputEinsum(
  node: NodeProto,
  probabilities: string,
): { value: Operand; outputPermutation: readonly number[] } | undefined {
  const equation = equationOf(node);
  const value = node.input[1];
  if (!equation || !value || node.input[0] !== probabilities) return undefined;
  const { first, second, result } = equation;
  const [queries, keys] = [first.at(-2) ?? '', first.at(-1) ?? ''];
  const batch = first.slice(0, -2);
  const size = [...second].filter((letter) => !first.includes(letter)).join('');
  const [wantedValue, wantedResult] = [batch + keys + size, batch + queries + size];
  if (!isOrderOf(wantedValue, second) || !isOrderOf(wantedResult, result)) return undefined;
  return {
    value: { value, permutation: permutation(wantedValue, second) },
    outputPermutation: permutation(result, wantedResult),
  };
}

function equationOf(node: NodeProto): Equation | undefined {
  if (node.opType !== 'Einsum' || node.input.length !== 2) return undefined;
  const equation = (stringAttribute(node, 'equation') ?? '').replaceAll(' ', '');
  const [, first, second, result] = /^([a-zA-Z]+),([a-zA-Z]+)->([a-zA-Z]+)$/.exec(equation) ?? [];
  return first && second && result ? { first, second, result } : undefined;
}

/** Whether two words have the same letters, each once. */
function isOrderOf(a: string, b: string): boolean {
  return (
    a.length === b.length && new Set(a).size === a.length && [...a].every((letter) => b.includes(letter))
  );
}

/** Where each letter of `wanted` is in `given`. */
function permutation(wanted: string, given: string): number[] {
  return [...wanted].map((letter) => given.indexOf(letter));
}
