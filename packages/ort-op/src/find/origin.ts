import type { GraphIndex, NodeProto } from '../model/index.js';

/** Where an operand of an attention comes from. */
export interface Origin {
  /** The activations it is a projection of. */
  readonly activations: ReadonlySet<string>;
  /** Keys or values of an earlier run are part of it. */
  readonly hasCache: boolean;
}

/**
 * Walks from a query, key or value back to the projections that make it, over norms, rotations and caches,
 * along the inputs that carry data (not those that carry shapes or indices).
 */
export function originOf(graph: GraphIndex, value: string): Origin {
  const activations = new Set<string>();
  const seen = new Set<string>();
  let hasCache = false;
  const pending = [value];
  for (let at = pending.pop(); at !== undefined; at = pending.pop()) {
    if (at === '' || seen.has(at)) continue;
    seen.add(at);
    const node = graph.producer(at);
    if (!node) continue;
    if (node.opType === 'Concat' && node.input.some((input) => isPast(graph, input))) hasCache = true;
    const projected = projectedInput(graph, node);
    // Other outputs than the first are scales and statistics, but for those of a Split.
    if (projected) activations.add(withoutReshaping(graph, projected));
    else if (at === node.output[0] || node.opType === 'Split') pending.push(...dataInputs(node));
  }
  return { activations, hasCache };
}

/**
 * Whether query, key and value are projections of the same activations. Where a model projects twice, through a
 * bottleneck (latent attention) or to fewer keys (spatial reduction), the activations before that count.
 */
export function isSelfAttention(graph: GraphIndex, query: Origin, key: Origin, value: Origin): boolean {
  const before = (activations: ReadonlySet<string>, wanted: ReadonlySet<string>) =>
    new Set(
      [...activations].flatMap((each) => (wanted.has(each) ? each : [...originOf(graph, each).activations])),
    );
  const same = (a: ReadonlySet<string>, b: ReadonlySet<string>) =>
    a.size === b.size && [...a].every((each) => b.has(each));
  const own = query.activations;
  return [own, before(own, new Set())].some(
    (wanted) =>
      wanted.size > 0 &&
      [key, value].every(
        ({ activations }) => same(activations, wanted) || same(before(activations, wanted), wanted),
      ),
  );
}

/** The activation a node multiplies by a weight. */
function projectedInput(graph: GraphIndex, node: NodeProto): string | undefined {
  if (!projections.has(node.opType)) return undefined;
  const [a, b] = node.input;
  if (a && b && isWeight(graph, b)) return a;
  return a && b && node.opType === 'MatMul' && isWeight(graph, a) ? b : undefined;
}

const projections = new Set([
  'MatMul',
  'Gemm',
  'Conv',
  'FusedMatMul',
  'MatMulInteger',
  'MatMulIntegerToFloat',
  'DynamicQuantizeMatMul',
  'MatMulNBits',
  'QLinearMatMul',
]);

/** Whether a value is made of initializers and constants alone. */
function isWeight(graph: GraphIndex, value: string): boolean {
  const pending = [value];
  const seen = new Set<string>();
  for (let at = pending.pop(); at !== undefined; at = pending.pop()) {
    if (at === '' || seen.has(at)) continue;
    seen.add(at);
    if (graph.initializer(at)) continue;
    const node = graph.producer(at);
    if (!node || !(node.opType === 'Constant' || keepsWeight.has(node.opType))) return false;
    pending.push(...node.input);
  }
  return true;
}

const keepsWeight = new Set([
  'Cast',
  'DequantizeLinear',
  'Identity',
  'Mul',
  'Reshape',
  'Squeeze',
  'Transpose',
  'Unsqueeze',
]);

/** The inputs of a node that carry its data. */
function dataInputs(node: NodeProto): readonly string[] {
  if (firstInputOnly.has(node.opType)) return node.input.slice(0, 1);
  // Angles of a rotary embedding come from positions, not from activations; masks and shapes neither.
  return noData.has(node.opType) ? [] : node.input;
}

const firstInputOnly = new Set([
  'Cast',
  'DequantizeLinear',
  'DynamicQuantizeLinear',
  'Expand',
  'Flatten',
  'Gather',
  'GatherElements',
  'GatherND',
  'LayerNormalization',
  'Pad',
  'QuantizeLinear',
  'ReduceMean',
  'ReduceSum',
  'Reshape',
  'Resize',
  'RMSNormalization',
  'RotaryEmbedding',
  'SimplifiedLayerNormalization',
  'Slice',
  'Split',
  'Squeeze',
  'Tile',
  'Transpose',
  'Unsqueeze',
]);

const noData = new Set([
  'Cos',
  'Sin',
  'Shape',
  'Size',
  'Range',
  'Constant',
  'ConstantOfShape',
  'NonZero',
  'CumSum',
]);

/** The activation itself, where a model only gives it another shape before projecting it. */
function withoutReshaping(graph: GraphIndex, value: string): string {
  let at = value;
  for (;;) {
    const node = graph.producer(at);
    const input = node?.input[0];
    if (!node || !input || !reshaping.has(node.opType)) return at;
    at = input;
  }
}

const reshaping = new Set([
  'Cast',
  'DynamicQuantizeLinear',
  'Flatten',
  'Identity',
  'QuantizeLinear',
  'Reshape',
  'Squeeze',
  'Transpose',
  'Unsqueeze',
]);

/** Whether a value is an input of the model, or a part of one. */
function isPast(graph: GraphIndex, value: string): boolean {
  let at = value;
  for (;;) {
    if (graph.isInput(at)) return true;
    const node = graph.producer(at);
    if (!node || !partOf.has(node.opType)) return false;
    at = node.input[0] ?? '';
  }
}

const partOf = new Set([
  'Slice',
  'Gather',
  'Split',
  'Squeeze',
  'Unsqueeze',
  'Transpose',
  'Reshape',
  'Identity',
  'Cast',
]);
