import {
  floatAttribute,
  intAttribute,
  intsAttribute,
  stringAttribute,
  tensorAttribute,
} from './attributes.js';
import { DataType, isInteger } from './element-types.js';
import { type Fact, type NodeFacts, nothing, numbers, type Rule } from './facts.js';
import { broadcast, type Dim, freshSymbol, product, quotient, type Scalar, sum, unify } from './symbols.js';
import { smallTensor, smallTensorLimit } from './tensors.js';

/** Shape, element type and small-constant inference, by operator. */
export const rules: ReadonlyMap<string, Rule> = new Map<string, Rule>([
  ...each(
    'Abs Ceil Celu Clip Cos CumSum Dropout Elu Erf Exp Floor Gelu HardSigmoid HardSwish Identity LayerNormalization',
    'LeakyRelu Log LogSoftmax Mish PRelu QuickGelu FastGelu BiasGelu RMSNormalization Relu Round RotaryEmbedding',
    'Selu Sigmoid Sign SimplifiedLayerNormalization Sin',
    'Softmax Softplus Swish Tanh Trilu InstanceNormalization GroupNormalization BatchNormalization ScatterND',
  )(sameAsFirst),
  ...each('Neg Sqrt Reciprocal')(unary),
  ...each('Add Sub Mul Div Pow Max Min Mod BitwiseAnd BitwiseOr')((at) => binary(at, at.input(0).type)),
  ...each('And Or Xor Equal Greater GreaterOrEqual Less LessOrEqual')((at) => binary(at, DataType.BOOL)),
  ...each('IsNaN IsInf Not')((at) => ({ type: DataType.BOOL, dims: at.input(0).dims })),
  ...each('ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceL2 ReduceSumSquare')(reduce),
  ['Attention', attention],
  ['GroupQueryAttention', groupQueryAttention],
  ['MultiHeadAttention', multiHeadAttention],
  ...each('SkipLayerNormalization SkipSimplifiedLayerNormalization')(skipNormalization),
  ['Cast', cast],
  ['CastLike', (at) => ({ type: at.input(1).type, dims: at.input(0).dims })],
  ['Concat', concat],
  ['Constant', constant],
  ['ConstantOfShape', constantOfShape],
  ['Conv', convolution],
  ['DequantizeLinear', (at) => ({ type: at.input(1).type, dims: at.input(0).dims })],
  ['DynamicQuantizeLinear', dynamicQuantize],
  ['Einsum', einsum],
  ['EmbedLayerNormalization', embedLayerNormalization],
  ['Expand', expand],
  ['Flatten', flatten],
  ['FusedMatMul', fusedMatMul],
  ['Gather', gather],
  ['GatherElements', (at) => ({ type: at.input(0).type, dims: at.input(1).dims })],
  ['Gemm', gemm],
  ['MatMul', (at) => ({ type: at.input(0).type, dims: matMulDims(at.input(0).dims, at.input(1).dims) })],
  ['MatMulInteger', (at) => ({ type: DataType.INT32, dims: matMulDims(at.input(0).dims, at.input(1).dims) })],
  ['MatMulNBits', matMulNBits],
  ['QuantizeLinear', (at) => ({ type: at.input(2).type ?? DataType.UINT8, dims: at.input(0).dims })],
  ['Range', range],
  ['Reshape', reshape],
  ['Shape', shape],
  [
    'Size',
    (at) => ({ type: DataType.INT64, dims: [], values: at.input(0).dims && [product(at.input(0).dims!)] }),
  ],
  ['Slice', slice],
  ['Split', split],
  ['Squeeze', squeeze],
  ['Tile', tile],
  ['Transpose', transpose],
  ['Unsqueeze', unsqueeze],
  ['Where', where],
]);

/** The axis counted from the front. */
export function fromFront(axis: number, rank: number): number {
  return axis < 0 ? axis + rank : axis;
}

/** Axes given by an attribute in old operator sets, by an input in new ones. */
export function axesOf(at: NodeFacts, inputIndex = 1): number[] | undefined {
  return intsAttribute(at.node, 'axes') ?? numbers(at.input(inputIndex));
}

function each(...names: string[]): (rule: Rule) => [string, Rule][] {
  return (rule) => names.flatMap((line) => line.split(' ')).map((name) => [name, rule]);
}

function sameAsFirst(at: NodeFacts): Fact {
  return at.node.opType === 'Identity' ? at.input(0) : { type: at.input(0).type, dims: at.input(0).dims };
}

function unary(at: NodeFacts): Fact {
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
  return type === DataType.FLOAT ? Math.fround(value) : value;
}

function binary(at: NodeFacts, type: DataType | undefined): Fact {
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

/** Sizes are never negative; a negative number takes no part in symbolic arithmetic. */
function isDim(value: Scalar): value is Dim {
  return value !== null && !(typeof value === 'number' && (value < 0 || !Number.isInteger(value)));
}

/** Applies a function to small tensors broadcast together. */
function elementwise(
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

function knownSizes(dims: readonly Dim[]): number[] | undefined {
  return dims.every((dim) => typeof dim === 'number') ? (dims as number[]) : undefined;
}

function cast(at: NodeFacts): Fact {
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

function where(at: NodeFacts): Fact {
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

function constant(at: NodeFacts): Fact {
  const { node } = at;
  const tensor = tensorAttribute(node, 'value');
  if (tensor) return smallTensor(tensor) ?? { type: tensor.dataType, dims: tensor.dims.map(Number) };
  const float = floatAttribute(node, 'value_float', undefined);
  if (float !== undefined) return { type: DataType.FLOAT, dims: [], values: [float] };
  const int = intAttribute(node, 'value_int', undefined);
  if (int !== undefined) return { type: DataType.INT64, dims: [], values: [int] };
  const ints = intsAttribute(node, 'value_ints');
  if (ints) return { type: DataType.INT64, dims: [ints.length], values: ints };
  const floats = node.attribute.find((attribute) => attribute.name === 'value_floats')?.floats;
  return floats ? { type: DataType.FLOAT, dims: [floats.length], values: floats } : nothing;
}

function constantOfShape(at: NodeFacts): Fact {
  const tensor = tensorAttribute(at.node, 'value');
  const type: DataType = tensor ? tensor.dataType : DataType.FLOAT;
  const dims = sizesFrom(at.input(0));
  const fill = tensor ? smallTensor(tensor)?.values[0] : 0;
  const count = dims && product(dims);
  const small = typeof count === 'number' && count <= smallTensorLimit && fill !== undefined;
  return { type, dims, values: small ? Array<number>(count).fill(fill) : undefined };
}

/** A shape from the tensor that holds it. */
function sizesFrom(fact: Fact): Dim[] | undefined {
  if (fact.values) return fact.values.map((value) => (isDim(value) ? value : freshSymbol()));
  const rank = fact.dims?.length === 1 ? fact.dims[0] : undefined;
  return typeof rank === 'number' && rank <= 16 ? Array.from({ length: rank }, freshSymbol) : undefined;
}

function shape(at: NodeFacts): Fact {
  const all = at.input(0).dims;
  if (!all) return { type: DataType.INT64, dims: [freshSymbol()] };
  const start = clamp(fromFront(intAttribute(at.node, 'start', 0), all.length), 0, all.length);
  const end = clamp(fromFront(intAttribute(at.node, 'end', all.length), all.length), 0, all.length);
  const values = all.slice(start, end);
  return { type: DataType.INT64, dims: [values.length], values };
}

function clamp(value: number, low: number, high: number): number {
  return Math.min(Math.max(value, low), high);
}

function reshape(at: NodeFacts): Fact {
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

function flatten(at: NodeFacts): Fact {
  const { type, dims } = at.input(0);
  if (!dims) return { type, dims: [freshSymbol(), freshSymbol()] };
  const axis = fromFront(intAttribute(at.node, 'axis', 1), dims.length);
  return { type, dims: [product(dims.slice(0, axis)), product(dims.slice(axis))] };
}

function transpose(at: NodeFacts): Fact {
  const { type, dims } = at.input(0);
  const permutation = intsAttribute(at.node, 'perm') ?? dims?.map((_, axis) => dims.length - 1 - axis);
  return { type, dims: permutation?.map((axis) => dims?.[axis] ?? freshSymbol()) };
}

function unsqueeze(at: NodeFacts): Fact {
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

function squeeze(at: NodeFacts): Fact {
  const { type, dims, values } = at.input(0);
  const axes = axesOf(at);
  if (!dims || (!axes && (at.node.input.length > 1 || !knownSizes(dims)))) return { type };
  const removed = axes && new Set(axes.map((axis) => fromFront(axis, dims.length)));
  return { type, dims: dims.filter((dim, axis) => (removed ? !removed.has(axis) : dim !== 1)), values };
}

function concat(at: NodeFacts): Fact {
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

function slice(at: NodeFacts): Fact {
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

function gather(at: NodeFacts): Fact {
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

function split(at: NodeFacts): Fact[] {
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

function expand(at: NodeFacts): Fact {
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

function tile(at: NodeFacts): Fact {
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

function range(at: NodeFacts): Fact {
  const [start, limit, step] = [at.input(0).values?.[0], at.input(1).values?.[0], at.input(2).values?.[0]];
  const { type } = at.input(0);
  if (start === 0 && step === 1 && typeof limit === 'string') return { type, dims: [limit] };
  if (typeof start !== 'number' || typeof limit !== 'number' || typeof step !== 'number' || step === 0) {
    return { type, dims: [freshSymbol()] };
  }
  const count = Math.max(0, Math.ceil((limit - start) / step));
  const small = count <= smallTensorLimit;
  return {
    type,
    dims: [count],
    values: small ? Array.from({ length: count }, (_, index) => start + index * step) : undefined,
  };
}

function reduce(at: NodeFacts): Fact {
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

function matMulDims(a: readonly Dim[] | undefined, b: readonly Dim[] | undefined): Dim[] | undefined {
  if (!a || !b || a.length === 0 || b.length === 0) return undefined;
  const batch = broadcast(a.slice(0, -2), b.slice(0, -2));
  const rows = a.length > 1 ? [a.at(-2)!] : [];
  const columns = b.length > 1 ? [b.at(-1)!] : [];
  return [...batch, ...rows, ...columns];
}

function fusedMatMul(at: NodeFacts): Fact {
  const swapped = (dims: readonly Dim[] | undefined, name: string) =>
    dims && intAttribute(at.node, name, 0) === 1 && dims.length > 1
      ? [...dims.slice(0, -2), dims.at(-1)!, dims.at(-2)!]
      : dims;
  const [a, b] = [at.input(0), at.input(1)];
  return { type: a.type, dims: matMulDims(swapped(a.dims, 'transA'), swapped(b.dims, 'transB')) };
}

function matMulNBits(at: NodeFacts): Fact {
  const { type, dims } = at.input(0);
  return { type, dims: dims && [...dims.slice(0, -1), intAttribute(at.node, 'N', 0)] };
}

function gemm(at: NodeFacts): Fact {
  const [a, b] = [at.input(0), at.input(1)];
  const rows = a.dims?.[intAttribute(at.node, 'transA', 0) ? 1 : 0] ?? freshSymbol();
  const columns = b.dims?.[intAttribute(at.node, 'transB', 0) ? 0 : 1] ?? freshSymbol();
  return { type: a.type, dims: [rows, columns] };
}

function convolution(at: NodeFacts): Fact {
  const { type, dims } = at.input(0);
  const channels = at.input(1).dims?.[0];
  return { type, dims: dims && [dims[0]!, channels ?? freshSymbol(), ...dims.slice(2).map(freshSymbol)] };
}

function einsum(at: NodeFacts): Fact {
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

function dynamicQuantize(at: NodeFacts): Fact[] {
  return [
    { type: DataType.UINT8, dims: at.input(0).dims },
    { type: DataType.FLOAT, dims: [] },
    { type: DataType.UINT8, dims: [] },
  ];
}

function attention(at: NodeFacts): Fact[] {
  if (at.node.domain === 'com.microsoft') return [projectedAttention(at)];
  const { type, dims } = at.input(0);
  const value = at.input(2).dims;
  if (dims?.length === 4 && value?.length === 4) return [{ type, dims: [...dims.slice(0, 3), value[3]!] }];
  return [{ type, dims: dims?.length === 3 ? [...dims.slice(0, 2), freshSymbol()] : undefined }];
}

/** com.microsoft Attention: query, key and value are projections of one input. */
function projectedAttention(at: NodeFacts): Fact {
  const { type, dims } = at.input(0);
  const all = at.input(1).dims?.[1];
  const size =
    intsAttribute(at.node, 'qkv_hidden_sizes')?.[2] ?? (all === undefined ? undefined : quotient(all, 3));
  return { type, dims: dims?.length === 3 ? [...dims.slice(0, 2), size ?? freshSymbol()] : undefined };
}

/** com.microsoft MultiHeadAttention: the output is as wide as the value. */
function multiHeadAttention(at: NodeFacts): Fact {
  const { type, dims } = at.input(0);
  const value = at.input(2).dims;
  return { type, dims: dims && [...dims.slice(0, 2), value?.length === 3 ? value[2]! : freshSymbol()] };
}

/** com.microsoft GroupQueryAttention: the output is as wide as the query, which key and value may be packed with. */
function groupQueryAttention(at: NodeFacts): Fact {
  const { type, dims } = at.input(0);
  const heads = intAttribute(at.node, 'num_heads', 1);
  const packed = at.node.input[1] ? 0 : 2 * intAttribute(at.node, 'kv_num_heads', 1);
  const size = dims?.[2] === undefined ? undefined : quotient(dims[2], heads + packed);
  const width = size === undefined ? freshSymbol() : product([size, heads]);
  return { type, dims: dims && [...dims.slice(0, 2), width] };
}

/** The sum that is normalised is the fourth output. */
function skipNormalization(at: NodeFacts): Fact[] {
  const { type, dims } = at.input(0);
  return [{ type, dims }, nothing, nothing, { type, dims }];
}

function embedLayerNormalization(at: NodeFacts): Fact[] {
  const ids = at.input(0).dims;
  const { type, dims } = at.input(2);
  const embedded = { type, dims: ids && [...ids, dims?.[1] ?? freshSymbol()] };
  return [embedded, { type: DataType.INT32, dims: ids?.slice(0, 1) }, embedded];
}
