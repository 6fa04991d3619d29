import { create } from '@bufbuild/protobuf';
import { MxattnError } from '@mxattn/core';
import { attributes, NodeList } from '../model/build.js';
import { fusedDomain, fusedOperator } from '../model/fused-operator.js';
import { usedValues } from '../model/graph-index.js';
import { DataType, GraphIndex, type GraphProto, type ModelProto, opsets } from '../model/index.js';
import { copy } from '../model/messages.js';
import { type NodeProto, type ValueInfoProto, ValueInfoProtoSchema } from '../model/onnx_pb.js';
import { inOrder } from '../model/order.js';
import { type FusedValues, fusedValues } from './fused-values.js';

/** A part of a model between attentions: a model of its own. */
export interface Segment {
  readonly model: ModelProto;
  readonly inputs: readonly string[];
  /** With their element types, as far as they are known. */
  readonly outputs: ReadonlyMap<string, DataType | undefined>;
  /** The attentions to compute once this segment has run, in graph order. */
  readonly attentions: readonly FusedValues[];
}

/**
 * Cuts a converted model (target `fused`) at its attentions. Running the segments in order, with the attentions of each
 * computed behind it, gives what the model gives. Weights that several segments use are in each of them.
 *
 * @throws MxattnError naming the attention inside a body of If or Loop, or the value between segments whose element type
 * is not known.
 */
export function segmentModel(model: ModelProto): Segment[] {
  const { graph, attentions } = withOperands(model);
  const index = new GraphIndex(graph, opsets(model));
  checkBodies(index);
  const cuts = new Map(attentions.map((each) => [each.output, each]));
  const levels = levelsOf(graph, cuts);
  const count = Math.max(0, ...levels.values()) + 1;
  const results = new Set(graph.output.map(({ name }) => name));
  const constants = constantNodes(graph);

  const parts = Array.from({ length: count }, (_, level) => {
    const nodes = graph.node.filter(
      (node) => !constants.has(node) && !isCut(node, cuts) && levelOf(node, levels) === level,
    );
    const used = new Set(nodes.flatMap((node) => [...usedValues(node)]));
    const made = new Set(nodes.flatMap(({ output }) => output));
    const own = [...constants].filter(
      ({ output }) =>
        output.some((name) => used.has(name)) || (level === 0 && output.some((name) => results.has(name))),
    );
    return {
      nodes: [...own, ...nodes],
      used,
      made,
      own: new Set(own.flatMap(({ output }) => output)),
      attentions: attentions.filter(({ output }) => levels.get(output) === level + 1),
    };
  });
  const initializers = new Map(graph.initializer.map((tensor) => [tensor.name, tensor]));
  const inputs = new Map(graph.input.map((input) => [input.name, input]));
  const passed = new Set(parts.flatMap(({ attentions }) => attentions.flatMap(operands)));
  return parts.map(({ nodes, used, made, own, attentions }, level): Segment => {
    const needed = [...used].filter((name) => !made.has(name) && !own.has(name));
    const fed = needed.filter((name) => inputs.has(name) || !initializers.has(name));
    const later = new Set(parts.slice(level + 1).flatMap((part) => [...part.used]));
    const given = [...made, ...own].filter(
      (name) => results.has(name) || (made.has(name) && (later.has(name) || passed.has(name))),
    );
    const part: GraphProto = copy(graph, {
      node: nodes,
      input: fed.map((name) => inputs.get(name) ?? typedInput(index, name)),
      output: given.map(
        (name) => graph.output.find((each) => each.name === name) ?? create(ValueInfoProtoSchema, { name }),
      ),
      initializer: needed.flatMap((name) => initializers.get(name) ?? []),
      valueInfo: [],
    });
    return {
      model: copy(model, {
        graph: part,
        functions: model.functions.filter(({ domain }) => domain !== fusedDomain),
        opsetImport: model.opsetImport.filter(({ domain }) => domain !== fusedDomain),
      }),
      inputs: fed.filter((name) => !initializers.has(name)),
      outputs: new Map(given.map((name) => [name, index.fact(name).type])),
      attentions,
    };
  });
}

/** The values that an attention reads. */
export function operands({ query, key, value, bias }: FusedValues): string[] {
  return [query, key, value, ...(bias === undefined ? [] : [bias])];
}

/** How many attentions lie before a value, at most, one behind the other; 0 for what no node computes. */
function levelsOf(graph: GraphProto, cuts: ReadonlyMap<string, FusedValues>): Map<string, number> {
  const levels = new Map<string, number>();
  for (const node of graph.node) {
    const level = levelOf(node, levels) + (isCut(node, cuts) ? 1 : 0);
    for (const output of node.output) levels.set(output, level);
  }
  return levels;
}

function levelOf(node: NodeProto, levels: ReadonlyMap<string, number>): number {
  return Math.max(0, ...[...usedValues(node)].map((name) => levels.get(name) ?? 0));
}

function isCut(node: NodeProto, cuts: ReadonlyMap<string, FusedValues>): boolean {
  return node.domain === fusedDomain && cuts.has(node.output[0] ?? '');
}

/** Nodes without inputs: they stand in every segment that uses them, as initializers do. */
function constantNodes(graph: GraphProto): Set<NodeProto> {
  return new Set(graph.node.filter((node) => node.opType === 'Constant' && usedValues(node).size === 0));
}

function typedInput(index: GraphIndex, name: string): ValueInfoProto {
  const { type } = index.fact(name);
  if (type === undefined) {
    throw new MxattnError(
      `the model cannot be cut at its attentions: the element type of ${name} is not known`,
    );
  }
  return create(ValueInfoProtoSchema, {
    name,
    type: { value: { case: 'tensorType', value: { elemType: type } } },
  });
}

function checkBodies(index: GraphIndex): void {
  for (const body of index.inner) {
    const found = body.graph.node.find(
      (node) => node.domain === fusedDomain && node.opType === fusedOperator,
    );
    if (found) {
      throw new MxattnError(`the model cannot be cut at ${found.name}: it is in a body of If, Loop or Scan`);
    }
    checkBodies(body);
  }
}

/** The lowest float16: a mask of minus infinity would also change rows in which every key is masked. */
const LOWEST_HALF = -65504;

/**
 * Attentions whose operands are all computed by nodes, biases in the type of the query: FusedAttention takes float32 ones
 * beside float16 operands.
 */
function withOperands(model: ModelProto): { graph: GraphProto; attentions: FusedValues[] } {
  const graph = model.graph!;
  const opset = opsets(model);
  const index = new GraphIndex(graph, opset);
  const list = new NodeList('mxattn.operand.', opset.get('') ?? 1);
  const made = new Map<string, string>();
  const once = (value: string, make: () => string) => {
    const known = made.get(value) ?? make();
    made.set(value, known);
    return known;
  };
  const computed = (value: string) => {
    const producer = index.producer(value);
    return producer && producer.opType !== 'Constant'
      ? value
      : once(value, () => list.add('Identity', [value]));
  };
  const half = (bias: string) =>
    once(bias, () => {
      const finite = list.add('Max', [bias, list.float(LOWEST_HALF)]);
      return list.add('Cast', [finite], [attributes.int('to', DataType.FLOAT16)]);
    });
  const attentions = fusedValues(model).map((each): FusedValues => {
    const { query, key, value, bias } = each;
    const added = index.fact(query).type === DataType.FLOAT16 ? half : computed;
    return {
      ...each,
      query: computed(query),
      key: computed(key),
      value: computed(value),
      bias: bias === undefined ? undefined : added(bias),
    };
  });
  return { graph: inOrder(copy(graph, { node: [...graph.node, ...list.nodes] })), attentions };
}
