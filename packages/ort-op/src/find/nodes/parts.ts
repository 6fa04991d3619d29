import { attributes, NodeList } from '../../model/build.js';
import { DataType, type GraphIndex, type NodeProto } from '../../model/index.js';
import type { Dim } from '../../model/symbols.js';
import { identity } from '../operands.js';
import type { Reading } from '../reading.js';
import type { Band, BiasTerm, Operand } from '../types.js';

/** The nodes that go before the replacement of a node. */
export function preludeOf(graph: GraphIndex, node: NodeProto): NodeList {
  return new NodeList(`${node.output[0] ?? ''}/`, graph.opsets.get('') ?? 1);
}

/** What is the same in every reading of a node that is all of an attention. */
export function wholeNode(
  node: NodeProto,
): Pick<Reading, 'nodes' | 'anchor' | 'outputNode' | 'shapeReaders'> {
  return { nodes: [node], anchor: node, outputNode: node, shapeReaders: [] };
}

/** An operand that needs no permutation. */
export function inHeads(value: string): Operand {
  return { value, permutation: identity(4) };
}

/** [batch, length, heads x size] as [batch, heads, length, size]. */
export function splitHeads(list: NodeList, value: string, heads: number): string {
  return list.transpose(list.add('Reshape', [value, list.ints(0, 0, heads, -1)]), [0, 2, 1, 3]);
}

/** The keys or values of an earlier run with those of this one behind them, under the name the model gives them. */
export function withPast(
  list: NodeList,
  past: string | undefined,
  value: string,
  present: string | undefined,
): string {
  if (past) return list.add('Concat', [past, value], [attributes.int('axis', 2)], present || undefined);
  return present ? list.add('Identity', [value], [], present) : value;
}

/** Positions 0, 1, ... of the keys, as a row. */
export function keyPositions(list: NodeList, key: string): string {
  return list.unsqueeze(range(list, list.pick(list.add('Shape', [key]), 0, 2)), 0);
}

/** Positions of the queries among the keys, as a column: offset, offset + 1, ... */
export function queryPositions(list: NodeList, query: string, offset: string | undefined): string {
  const column = list.unsqueeze(range(list, list.pick(list.add('Shape', [query]), 0, 2)), 1);
  return offset ? list.add('Add', [column, offset]) : column;
}

/** 0, 1, ... up to a limit without axes. */
export function range(list: NodeList, limit: string): string {
  return list.add('Range', [list.int(0), limit, list.int(1)]);
}

/** A term that takes scores out where its value is true, and where that is outside of a band if one is given. */
export function maskTerm(value: string, dims: readonly Dim[], band?: Band): BiasTerm {
  return {
    kind: 'mask',
    value,
    type: DataType.BOOL,
    dims,
    factor: 1,
    fill: -Infinity,
    scores: fourUnknown,
    ...(band ? { band } : {}),
  };
}

/** Takes the scores outside of a band out. */
export function bandTerms(list: NodeList, query: string, key: string, { left, right }: Band): BiasTerm[] {
  const keys = keyPositions(list, key);
  const offset = list.add('Sub', [list.sizes(key, 2, 3), list.sizes(query, 2, 3)]);
  const queries = queryPositions(list, query, offset);
  const mask = (value: string, band: Band) => maskTerm(value, ['queries', 'keys'], band);
  const last = () => (right === 0 ? queries : list.add('Add', [queries, list.int(right)]));
  return [
    ...(right < 0 ? [] : [mask(list.add('Greater', [keys, last()]), { left: -1, right })]),
    ...(left < 0
      ? []
      : [mask(list.add('Less', [keys, list.add('Sub', [queries, list.int(left)])]), { left, right: -1 })]),
  ];
}

/** Whether two sizes are known to be equal. */
export function sameDim(a: Dim | undefined, b: Dim | undefined): boolean {
  return a !== undefined && a === b;
}

/** A term that keeps scores where its value is true. */
export function keepTerm(value: string, dims: readonly Dim[]): BiasTerm {
  return { ...maskTerm(value, dims), kind: 'keep' };
}

/** A term that adds numbers. */
export function addTerm(
  value: string,
  type: DataType | undefined,
  dims: readonly Dim[] | undefined,
): BiasTerm {
  return { kind: 'add', value, type, dims, factor: 1, fill: 0, scores: fourUnknown };
}

/** Terms of a fused node are broadcast to four axes; their sizes are known when the model runs. */
const fourUnknown: readonly Dim[] = ['batch', 'heads', 'queries', 'keys'];

/** `total / parts` if that is a whole number of channels. */
export function share(total: number | undefined, parts: number): number | undefined {
  const size = total === undefined || parts <= 0 ? 0 : total / parts;
  return size >= 1 && Number.isInteger(size) ? size : undefined;
}

export function knownDim(dim: Dim | undefined): number | undefined {
  return typeof dim === 'number' ? dim : undefined;
}
