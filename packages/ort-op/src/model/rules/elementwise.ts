import { fromF16, toF16 } from '@mxattn/core';
import { intAttribute } from '../attributes.js';
import { DataType, isInteger } from '../element-types.js';
import type { Fact, NodeFacts } from '../facts.js';
import { broadcast, type Dim, product, quotient, type Scalar, sum } from '../symbols.js';
import { smallTensorLimit } from '../tensors.js';
import { isDim, knownSizes } from './axes.js';

export function sameAsFirst(at: NodeFacts): Fact {
  return at.node.opType === 'Identity' ? at.input(0) : { type: at.input(0).type, dims: at.input(0).dims };
}

export function unary(at: NodeFacts): Fact {
  const { type, dims, values } = at.input(0);
  const compute = { Neg: (x: number) => -x, Sqrt: Math.sqrt, Reciprocal: (x: number) => 1 / x }[
    at.node.opType
  ];
  return {
    type,
    dims,
    values:
      compute && values?.map((value) => (typeof value === 'number' ? rounded(compute(value), type) : null)),
  };
}

function rounded(value: number, type: DataType | undefined): number {
  if (type === DataType.FLOAT16) return fromF16(toF16(value));
  return type === DataType.FLOAT ? Math.fround(value) : value;
}

export function binary(at: NodeFacts, type: DataType | undefined): Fact {
  const a = at.input(0);
  const b = at.input(1);
  if (at.node.input.length !== 2 || !a.dims || !b.dims) return { type };
  const dims = broadcast(a.dims, b.dims);
  const compute = binaryValues[at.node.opType];
  return {
    type,
    dims,
    values: compute && elementwise([a, b], dims, ([x, y]) => compute(x!, y!, a.type)),
  };
}

type BinaryValue = (x: Scalar, y: Scalar, type: DataType | undefined) => Scalar;

const binaryValues: Readonly<Record<string, BinaryValue>> = {
  Add: (x, y, type) => arithmetic(x, y, type, (a, b) => a + b) ?? (isDim(x) && isDim(y) ? sum(x, y) : null),
  Sub: (x, y, type) => (x !== null && x === y ? 0 : arithmetic(x, y, type, (a, b) => a - b)),
  Mul: (x, y, type) =>
    arithmetic(x, y, type, (a, b) => a * b) ?? (isDim(x) && isDim(y) ? product([x, y]) : null),
  Div: (x, y, type) =>
    arithmetic(x, y, type, (a, b) => (type && isInteger(type) ? Math.trunc(a / b) : a / b)) ??
    (isDim(x) && isDim(y) ? (quotient(x, y) ?? null) : null),
  Pow: (x, y, type) => arithmetic(x, y, type, (a, b) => a ** b),
  Max: (x, y, type) => arithmetic(x, y, type, Math.max),
  Min: (x, y, type) => arithmetic(x, y, type, Math.min),
  // A symbol is a size, so it equals no negative number.
  Equal: (x, y) => {
    if (x !== null && x === y) return 1;
    if (typeof x === 'number' && typeof y === 'number') return 0;
    const negative = (value: Scalar) => typeof value === 'number' && value < 0;
    return (negative(x) && typeof y === 'string') || (negative(y) && typeof x === 'string') ? 0 : null;
  },
};

function arithmetic(
  x: Scalar,
  y: Scalar,
  type: DataType | undefined,
  compute: (a: number, b: number) => number,
): number | null {
  return typeof x === 'number' && typeof y === 'number' ? rounded(compute(x, y), type) : null;
}

/** Applies a function to small tensors broadcast together. */
export function elementwise(
  operands: readonly Fact[],
  dims: readonly Dim[],
  compute: (elements: readonly Scalar[]) => Scalar,
): Scalar[] | undefined {
  const sizes = knownSizes(dims);
  if (!sizes || operands.some((operand) => !operand.values || !operand.dims)) return undefined;
  const count = sizes.reduce((a, b) => a * b, 1);
  if (count > smallTensorLimit) return undefined;
  return Array.from({ length: count }, (_, index) =>
    compute(operands.map((operand) => operand.values![broadcastIndex(index, sizes, operand.dims!)] ?? null)),
  );
}

function broadcastIndex(index: number, sizes: readonly number[], dims: readonly Dim[]): number {
  let rest = index;
  let stride = 1;
  let result = 0;
  for (let axis = sizes.length - 1; axis >= 0; axis--) {
    const position = rest % sizes[axis]!;
    rest = Math.floor(rest / sizes[axis]!);
    const own = axis - sizes.length + dims.length;
    if (own < 0) break;
    const size = Number(dims[own]);
    if (size !== 1) result += position * stride;
    stride *= size;
  }
  return result;
}

export function cast(at: NodeFacts): Fact {
  const { dims, values } = at.input(0);
  const type: DataType = intAttribute(at.node, 'to', DataType.UNDEFINED);
  return {
    type,
    dims,
    values: values?.map((value) => {
      if (typeof value !== 'number') return value;
      if (type === DataType.BOOL) return value === 0 ? 0 : 1;
      return isInteger(type) ? Math.trunc(value) : rounded(value, type);
    }),
  };
}

export function where(at: NodeFacts): Fact {
  const [condition, yes, no] = [at.input(0), at.input(1), at.input(2)];
  if (!condition.dims || !yes.dims || !no.dims) return { type: yes.type };
  const dims = broadcast(broadcast(condition.dims, yes.dims), no.dims);
  return {
    type: yes.type,
    dims,
    values: elementwise([condition, yes, no], dims, ([test, x, y]) => {
      if (typeof test === 'number') return (test ? x : y) ?? null;
      return x === y ? (x ?? null) : null;
    }),
  };
}
