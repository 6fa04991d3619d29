import { intAttribute, intsAttribute } from '../attributes.js';
import { DataType } from '../element-types.js';
import { type Fact, type NodeFacts, numbers } from '../facts.js';
import { broadcast, type Dim, freshSymbol, product, quotient, type Scalar, sum, unify } from '../symbols.js';
import { axesOf, clamp, fromFront, isDim, knownSizes, sizesFrom } from './axes.js';
import { elementwise } from './elementwise.js';

export function shape(at: NodeFacts): Fact {
  const all = at.input(0).dims;
  if (!all) return { type: DataType.INT64, dims: [freshSymbol()] };
  const start = clamp(fromFront(intAttribute(at.node, 'start', 0), all.length), 0, all.length);
  const end = clamp(fromFront(intAttribute(at.node, 'end', all.length), all.length), 0, all.length);
  const values = all.slice(start, end);
  return { type: DataType.INT64, dims: [values.length], values };
}

export function reshape(at: NodeFacts): Fact {
  const { type, dims, values } = at.input(0);
  const target = at.input(1);
  const keepZero = intAttribute(at.node, 'allowzero', 0) === 1;
  if (!target.values) return { type, dims: sizesFrom(target) };
  const result = target.values.map((value, axis): Dim | undefined => {
    if (value === 0 && !keepZero) return dims?.[axis] ?? freshSymbol();
    if (value === -1) return undefined;
    return isDim(value) ? value : freshSymbol();
  });
  const others = product(result.filter((dim) => dim !== undefined));
  const inferred = (dims && quotient(product(dims), others)) ?? freshSymbol();
  return { type, dims: result.map((dim) => dim ?? inferred), values };
}

export function flatten(at: NodeFacts): Fact {
  const { type, dims } = at.input(0);
  if (!dims) return { type, dims: [freshSymbol(), freshSymbol()] };
  const axis = fromFront(intAttribute(at.node, 'axis', 1), dims.length);
  return { type, dims: [product(dims.slice(0, axis)), product(dims.slice(axis))] };
}

export function transpose(at: NodeFacts): Fact {
  const { type, dims } = at.input(0);
  const permutation = intsAttribute(at.node, 'perm') ?? dims?.map((_, axis) => dims.length - 1 - axis);
  return { type, dims: permutation?.map((axis) => dims?.[axis] ?? freshSymbol()) };
}

export function unsqueeze(at: NodeFacts): Fact {
  const { type, dims, values } = at.input(0);
  const axes = axesOf(at);
  if (!dims || !axes) return { type };
  const rank = dims.length + axes.length;
  const inserted = new Set(axes.map((axis) => fromFront(axis, rank)));
  const rest = [...dims];
  return {
    type,
    dims: Array.from({ length: rank }, (_, axis) => (inserted.has(axis) ? 1 : (rest.shift() ?? 1))),
    values,
  };
}

export function squeeze(at: NodeFacts): Fact {
  const { type, dims, values } = at.input(0);
  const axes = axesOf(at);
  if (!dims || (!axes && (at.node.input.length > 1 || !knownSizes(dims)))) return { type };
  const removed = axes && new Set(axes.map((axis) => fromFront(axis, dims.length)));
  return { type, dims: dims.filter((dim, axis) => (removed ? !removed.has(axis) : dim !== 1)), values };
}

export function concat(at: NodeFacts): Fact {
  const operands = at.node.input.map((_, index) => at.input(index));
  const type = operands[0]?.type;
  const ranks = operands.map((operand) => operand.dims?.length);
  const rank = ranks.find((each) => each !== undefined);
  if (rank === undefined || ranks.some((each) => each !== undefined && each !== rank)) return { type };
  const axis = fromFront(intAttribute(at.node, 'axis', 0), rank);
  const dims = Array.from({ length: rank }, (_, each): Dim => {
    const sizes = operands.map((operand) => operand.dims?.[each] ?? freshSymbol());
    return each === axis ? sizes.reduce(sum) : sizes.reduce(unify);
  });
  const values = rank === 1 && operands.every((operand) => operand.values);
  return { type, dims, values: values ? operands.flatMap((operand) => operand.values!) : undefined };
}

export function slice(at: NodeFacts): Fact {
  const { type, dims, values } = at.input(0);
  const byAttribute = intsAttribute(at.node, 'starts');
  const starts = byAttribute ?? at.input(1).values;
  const ends = byAttribute ? intsAttribute(at.node, 'ends') : at.input(2).values;
  const axes = byAttribute
    ? (intsAttribute(at.node, 'axes') ?? byAttribute.map((_, axis) => axis))
    : at.node.input[3]
      ? numbers(at.input(3))
      : starts?.map((_, axis) => axis);
  const steps = at.node.input[4] ? numbers(at.input(4)) : starts?.map(() => 1);
  if (!dims) return { type };
  if (!starts || !ends || !axes || !steps) return { type, dims: dims.map(freshSymbol) };
  const result: Dim[] = [...dims];
  axes.forEach((axis, index) => {
    const at = fromFront(axis, dims.length);
    result[at] = slicedSize(dims[at] ?? 0, starts[index] ?? null, ends[index] ?? null, steps[index] ?? 1);
  });
  const start = starts[0];
  const size = result[0];
  const whole = dims.length === 1 && values && typeof start === 'number' && typeof size === 'number';
  return { type, dims: result, values: whole ? slicedValues(values, start, size, steps[0] ?? 1) : undefined };
}

function slicedSize(size: Dim, start: Scalar, end: Scalar, step: number): Dim {
  if (start === 0 && step === 1) {
    if (end === size || (typeof end === 'number' && end >= 2 ** 31 - 1)) return size;
    // The end is cut at the size, so one of the two is the result; which one is not known.
    if (typeof end !== 'number' || typeof size !== 'number') return freshSymbol();
  }
  if (typeof size !== 'number' || typeof start !== 'number' || typeof end !== 'number' || step === 0) {
    return freshSymbol();
  }
  const [low, high] = step > 0 ? [0, size] : [-1, size - 1];
  const first = clamp(fromFront(start, size), step > 0 ? 0 : 0, high);
  const last = clamp(end < 0 ? Math.max(end + size, low) : end, low, high);
  return Math.max(0, Math.ceil((last - first) / step));
}

function slicedValues(values: readonly Scalar[], start: number, size: number, step: number): Scalar[] {
  const first = clamp(fromFront(start, values.length), 0, step > 0 ? values.length : values.length - 1);
  return Array.from({ length: size }, (_, index) => values[first + index * step] ?? null);
}

export function gather(at: NodeFacts): Fact {
  const data = at.input(0);
  const indices = at.input(1);
  if (!data.dims || !indices.dims) return { type: data.type };
  const axis = fromFront(intAttribute(at.node, 'axis', 0), data.dims.length);
  const dims = [...data.dims.slice(0, axis), ...indices.dims, ...data.dims.slice(axis + 1)];
  const picks = numbers(indices);
  const values = data.dims.length === 1 && data.values && picks;
  return {
    type: data.type,
    dims,
    values: values
      ? picks.map((pick) => data.values![fromFront(pick, data.values!.length)] ?? null)
      : undefined,
  };
}

export function split(at: NodeFacts): Fact[] {
  const { type, dims } = at.input(0);
  const count = at.node.output.length;
  if (!dims) return at.node.output.map(() => ({ type }));
  const axis = fromFront(intAttribute(at.node, 'axis', 0), dims.length);
  const sizes = intsAttribute(at.node, 'split') ?? at.input(1).values;
  const equal = quotient(dims[axis] ?? 0, count) ?? freshSymbol();
  return at.node.output.map((_, index) => {
    const given = at.node.input[1] || sizes ? sizes?.[index] : equal;
    const size = given !== undefined && isDim(given) ? given : freshSymbol();
    return { type, dims: dims.map((dim, each) => (each === axis ? size : dim)) };
  });
}

export function expand(at: NodeFacts): Fact {
  const { type, dims, values } = at.input(0);
  const target = sizesFrom(at.input(1));
  if (!dims || !target) return { type };
  const result = broadcast(dims, target);
  return {
    type,
    dims: result,
    values: values && elementwise([at.input(0)], result, ([value]) => value ?? null),
  };
}

export function tile(at: NodeFacts): Fact {
  const { type, dims } = at.input(0);
  const repeats = at.input(1).values;
  return {
    type,
    dims: dims?.map((dim, axis) => {
      const times = repeats?.[axis];
      return times !== undefined && isDim(times) ? product([dim, times]) : freshSymbol();
    }),
  };
}
