import { NodeList } from '../model/build.js';
import { fusedDomain, fusedOperator } from '../model/fused-operator.js';
import { usedValues } from '../model/graph-index.js';
import {
  DataType,
  type GraphProto,
  intAttribute,
  type ModelProto,
  type NodeProto,
  opsets,
} from '../model/index.js';
import { copy } from '../model/messages.js';
import { modelInputs, type ValueSignature } from '../model/signature.js';
import { instead } from './shape-reader.js';

/** The cache of one layer: the inputs and outputs that carried it as tensors. */
export interface CacheLayer {
  /** Of these tensors. */
  readonly elementType: 'float32' | 'float16';
  readonly pastKey: string;
  readonly pastValue: string;
  readonly presentKey: string;
  readonly presentValue: string;
  readonly kvHeads: number;
  readonly headSize: number;
  readonly valueHeadSize: number;
}

/** A model without the key/value cache that it had as tensors. */
export interface CachelessModel {
  readonly model: ModelProto;
  /** By layer. */
  readonly layers: readonly CacheLayer[];
  /** Inputs for past keys or values that are still read, but for their shape alone. */
  readonly shapeInputs: ReadonlySet<string>;
}

/** New keys and values as an attention reads them. */
export interface NewTokens {
  readonly key: string;
  readonly value: string;
  readonly elementType: CacheLayer['elementType'];
}

/** The nodes in the place of a FusedAttention, which get the new keys and values alone. */
export type AttendToNew = (node: NodeProto, added: NewTokens, cache: CacheLayer) => readonly NodeProto[];

/**
 * Takes the key/value cache out of a converted model: where past and new keys were joined to a `present` output, only the
 * new ones are left. The model itself stays as it is.
 *
 * @returns The model, or the reason why the cache stays a matter of tensors.
 */
export function withoutCache(
  model: ModelProto,
  attend: AttendToNew,
): CachelessModel | { readonly reason: string } {
  const graph = model.graph!;
  const nodes = graph.node.filter(({ domain, opType }) => domain === fusedDomain && opType === fusedOperator);
  nodes.sort((a, b) => intAttribute(a, 'layer', 0) - intAttribute(b, 'layer', 0));
  const joins = new Joins(graph, modelInputs(model));
  const layers: CacheLayer[] = [];
  const removed = new Set<NodeProto>();
  const replaced = new Map<NodeProto, readonly NodeProto[]>();
  const opset = opsets(model).get('') ?? 1;
  for (const node of nodes) {
    const key = joins.at(node.input[1]!);
    const value = joins.at(node.input[2]!);
    if (!key || !value)
      return { reason: `${node.name} does not continue a cache that is an input and an output` };
    const layer: CacheLayer = {
      elementType: key.elementType,
      pastKey: key.past.name,
      pastValue: value.past.name,
      presentKey: key.present,
      presentValue: value.present,
      kvHeads: key.heads,
      headSize: key.size,
      valueHeadSize: value.size,
    };
    layers.push(layer);
    for (const join of [key, value]) {
      removed.add(join.node);
      if (join.cast) replaced.set(join.cast, [copy(join.cast, { input: [join.added] })]);
      for (const reader of join.shapeReaders) replaced.set(reader, joinedShape(reader, join, opset));
    }
    replaced.set(node, attend(node, newTokens(key, value), layer));
  }
  if (layers.length === 0) return { reason: 'no attention was replaced' };

  const rest = graph.node
    .filter((node) => !removed.has(node))
    .flatMap((node) => replaced.get(node) ?? [node]);
  const used = new Set(rest.flatMap((node) => [...usedValues(node)]));
  const past = new Set(layers.flatMap(({ pastKey, pastValue }) => [pastKey, pastValue]));
  const present = new Set(layers.flatMap(({ presentKey, presentValue }) => [presentKey, presentValue]));
  const shapeInputs = new Set([...past].filter((name) => used.has(name)));
  return {
    model: copy(model, {
      graph: copy(graph, {
        node: rest,
        input: graph.input.filter(({ name }) => !past.has(name) || shapeInputs.has(name)),
        output: graph.output.filter(({ name }) => !present.has(name)),
      }),
    }),
    layers,
    shapeInputs,
  };
}

function newTokens(key: Join, value: Join): NewTokens {
  const read = ({ cast, added }: Join) => cast?.output[0] ?? added;
  const { cast, elementType } = key;
  return {
    key: read(key),
    value: read(value),
    elementType: cast ? elementTypeOf(intAttribute(cast, 'to', DataType.FLOAT)) : elementType,
  };
}

function elementTypeOf(type: DataType): CacheLayer['elementType'] {
  return type === DataType.FLOAT16 ? 'float16' : 'float32';
}

/** Where a cache and new tokens are joined. */
interface Join {
  readonly node: NodeProto;
  readonly past: ValueSignature;
  readonly elementType: CacheLayer['elementType'];
  readonly added: string;
  readonly present: string;
  /** Between `present` and the attention: an operator set that has FusedAttention of float32 alone. */
  readonly cast: NodeProto | undefined;
  readonly heads: number;
  readonly size: number;
  /** Shape nodes that read `present`. */
  readonly shapeReaders: readonly NodeProto[];
}

/** What a Shape node gives of past and new tokens joined, from the shapes of both. */
function joinedShape(reader: NodeProto, { past, added }: Join, opset: number): NodeProto[] {
  const list = new NodeList(`mxattn.${reader.output[0]}.`, opset);
  const length = list.add('Add', [list.sizes(past.name, 2, 3), list.sizes(added, 2, 3)]);
  const shape = list.concat(list.sizes(past.name, 0, 2), length, list.sizes(past.name, 3, 4));
  instead(list, reader, shape);
  return list.nodes;
}

class Joins {
  private readonly producers = new Map<string, NodeProto>();
  private readonly consumers = new Map<string, NodeProto[]>();
  private readonly outputs: ReadonlySet<string>;
  private readonly inputs: ReadonlyMap<string, ValueSignature>;

  constructor(graph: GraphProto, inputs: readonly ValueSignature[]) {
    this.inputs = new Map(inputs.map((input) => [input.name, input]));
    this.outputs = new Set(graph.output.map(({ name }) => name));
    for (const node of graph.node) {
      for (const output of node.output) this.producers.set(output, node);
      for (const value of usedValues(node)) {
        const users = this.consumers.get(value);
        if (users) users.push(node);
        else this.consumers.set(value, [node]);
      }
    }
  }

  /**
   * The Concat of an input [batch, heads, past, size] and new tokens that an attention reads, and but for their shape nothing
   * else.
   */
  at(operand: string): Join | undefined {
    const producer = this.producers.get(operand);
    const cast = producer?.opType === 'Cast' ? producer : undefined;
    if (cast && this.consumers.get(operand)!.length !== 1) return undefined;
    const present = cast?.input[0] ?? operand;
    const node = this.producers.get(present);
    if (node?.opType !== 'Concat' || node.input.length !== 2) return undefined;
    const axis = intAttribute(node, 'axis', 0);
    const [pastName, added] = node.input as [string, string];
    const past = this.inputs.get(pastName);
    if ((axis !== 2 && axis !== -2) || past?.dims.length !== 4) return undefined;
    const { type: elementType } = past;
    if (elementType !== 'float32' && elementType !== 'float16') return undefined;
    const [, heads, , size] = past.dims;
    if (typeof heads !== 'number' || typeof size !== 'number' || !this.outputs.has(present)) return undefined;
    // Without the tensors their shapes are still known, but nothing else.
    const readers = this.consumers.get(present) ?? [];
    const shapeReaders = readers.filter(({ opType, domain }) => opType === 'Shape' && domain === '');
    if (readers.length !== shapeReaders.length + 1) return undefined;
    const others = this.consumers.get(pastName)!.filter((user) => user !== node);
    if (others.some(({ opType }) => opType !== 'Shape')) return undefined;
    return { node, past, elementType, added, present, cast, heads, size, shapeReaders };
  }
}
