import { intAttribute, stringAttribute } from '../attributes.js';
import { DataType } from '../element-types.js';
import type { Fact, NodeFacts } from '../facts.js';
import { broadcast, type Dim, freshSymbol, product, unify } from '../symbols.js';
import { axesOf, fromFront, isDim } from './axes.js';

export function reduce(at: NodeFacts): Fact {
  const { type, dims, values } = at.input(0);
  const keep = intAttribute(at.node, 'keepdims', 1) === 1;
  const axes = axesOf(at);
  if (!dims || (at.node.input[1] && !axes)) return { type };
  const reduced = new Set((axes ?? dims.map((_, axis) => axis)).map((axis) => fromFront(axis, dims.length)));
  const result = dims.flatMap((dim, axis): Dim[] => (reduced.has(axis) ? (keep ? [1] : []) : [dim]));
  const whole =
    at.node.opType === 'ReduceProd' && dims.length === 1 && values?.every(isDim) && reduced.has(0);
  return { type, dims: result, values: whole ? [product(values as Dim[])] : undefined };
}

export function matMulDims(a: readonly Dim[] | undefined, b: readonly Dim[] | undefined): Dim[] | undefined {
  if (!a || !b || a.length === 0 || b.length === 0) return undefined;
  const batch = broadcast(a.slice(0, -2), b.slice(0, -2));
  const rows = a.length > 1 ? [a.at(-2)!] : [];
  const columns = b.length > 1 ? [b.at(-1)!] : [];
  return [...batch, ...rows, ...columns];
}

export function fusedMatMul(at: NodeFacts): Fact {
  const swapped = (dims: readonly Dim[] | undefined, name: string) =>
    dims && intAttribute(at.node, name, 0) === 1 && dims.length > 1
      ? [...dims.slice(0, -2), dims.at(-1)!, dims.at(-2)!]
      : dims;
  const [a, b] = [at.input(0), at.input(1)];
  return { type: a.type, dims: matMulDims(swapped(a.dims, 'transA'), swapped(b.dims, 'transB')) };
}

export function matMulNBits(at: NodeFacts): Fact {
  const { type, dims } = at.input(0);
  return { type, dims: dims && [...dims.slice(0, -1), intAttribute(at.node, 'N', 0)] };
}

export function gemm(at: NodeFacts): Fact {
  const [a, b] = [at.input(0), at.input(1)];
  const rows = a.dims?.[intAttribute(at.node, 'transA', 0) ? 1 : 0] ?? freshSymbol();
  const columns = b.dims?.[intAttribute(at.node, 'transB', 0) ? 0 : 1] ?? freshSymbol();
  return { type: a.type, dims: [rows, columns] };
}

export function convolution(at: NodeFacts): Fact {
  const { type, dims } = at.input(0);
  const channels = at.input(1).dims?.[0];
  return { type, dims: dims && [dims[0]!, channels ?? freshSymbol(), ...dims.slice(2).map(freshSymbol)] };
}

export function einsum(at: NodeFacts): Fact {
  const { type } = at.input(0);
  const [left, right] = (stringAttribute(at.node, 'equation') ?? '').replaceAll(' ', '').split('->');
  if (!left || right === undefined || left.includes('.')) return { type };
  const sizes = new Map<string, Dim>();
  left.split(',').forEach((letters, index) => {
    [...letters].forEach((letter, axis) => {
      const dim = at.input(index).dims?.[axis];
      if (dim !== undefined) sizes.set(letter, unify(sizes.get(letter) ?? dim, dim));
    });
  });
  return { type, dims: [...right].map((letter) => sizes.get(letter) ?? freshSymbol()) };
}

export function dynamicQuantize(at: NodeFacts): Fact[] {
  return [
    { type: DataType.UINT8, dims: at.input(0).dims },
    { type: DataType.FLOAT, dims: [] },
    { type: DataType.UINT8, dims: [] },
  ];
}
