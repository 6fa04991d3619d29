import { fusedDomain } from '../model/fused-operator.js';
import { DataType, GraphIndex, isComputed, type ModelProto, type NodeProto, opsets } from '../model/index.js';
import { inlineFunctions } from '../model/inline.js';
import { copy } from '../model/messages.js';
import { inOrder } from '../model/order.js';
import { readSoftmax } from './decomposed.js';
import { isFusedNode, readFusedNode } from './fused-nodes.js';
import { isSelfAttention, originOf } from './origin.js';
import type { Reading, Reason } from './reading.js';
import type { BiasTerm, FoundAttention, LeftAttention, ReadOptions } from './types.js';

/** Every attention of a model: those that can be replaced, and the others with the reason. */
export interface Attentions {
  readonly found: readonly FoundAttention[];
  readonly left: readonly LeftAttention[];
}

/** Finds the attentions of a model, also in the bodies of If and Loop. */
export function findAttention(model: ModelProto): Attentions {
  const { graph, opsetImport } = openModel(model);
  return graph ? findIn(new GraphIndex(graph, opsets({ opsetImport }))) : { found: [], left: [] };
}

/**
 * The model in the form that attention is looked for in: nodes in order, functions that hold attention inlined.
 *
 * @throws MxattnError where its nodes depend on themselves.
 */
export function openModel(model: ModelProto): ModelProto {
  const inlined = inlineFunctions(
    model,
    ({ domain }, nodes) => domain !== fusedDomain && nodes.some(isAnchor),
  );
  if (!inlined.graph) return inlined;
  const ordered = copy(inlined, { graph: inOrder(inlined.graph) });
  return ordered.irVersion >= 4n ? ordered : withoutDefaultInputs(ordered);
}

/** Before IR version 4 every initializer had to be an input too, without being meant to be fed. */
function withoutDefaultInputs(model: ModelProto): ModelProto {
  const { graph } = model;
  if (!graph) return model;
  const initializers = new Set(graph.initializer.map((tensor) => tensor.name));
  return copy(model, {
    graph: copy(graph, { input: graph.input.filter((input) => !initializers.has(input.name)) }),
  });
}

function isAnchor(node: NodeProto): boolean {
  return node.opType === 'Softmax' || isFusedNode(node);
}

/** Finds the attentions of a graph and of the bodies in it. */
export function findIn(root: GraphIndex, options: ReadOptions = {}): Attentions {
  const found: FoundAttention[] = [];
  const left: LeftAttention[] = [];
  const visit = (graph: GraphIndex) => {
    for (const node of graph.graph.node) {
      const reading =
        node.opType === 'Softmax' ? readSoftmax(graph, node) : readFusedNode(graph, node, options);
      if (!reading) continue;
      const result = complete(graph, reading, found.length);
      if ('reason' in result) left.push({ node: nameOf(node), reason: result.reason });
      else found.push(result);
    }
    graph.inner.forEach(visit);
  };
  visit(root);
  return { found, left };
}

/** Adds to what was read what follows from it. */
function complete(graph: GraphIndex, reading: Reading | Reason, layer: number): FoundAttention | Reason {
  if ('reason' in reading) return reading;
  const { nodes, sources, type, ...rest } = reading;
  if (type === undefined || !isComputed(type)) return { reason: typeReason(type) };
  if (sources.some((source) => (graph.fact(source).type ?? type) !== type)) {
    return { reason: 'its query, key and value are not of one element type' };
  }
  const { heads, kvHeads } = reading;
  if (heads !== undefined && kvHeads !== undefined && heads % kvHeads !== 0) {
    return { reason: `its ${heads} query heads cannot share ${kvHeads} heads of keys` };
  }
  const [query, key, value] = sources.map((source) => originOf(graph, source));
  const sameSource = sources.every((source) => source === sources[0]);
  return {
    ...rest,
    graph,
    type,
    nodes: nodes.map(nameOf),
    output: rest.outputNode.output[0] ?? '',
    layer,
    selfAttention: sameSource || isSelfAttention(graph, query!, key!, value!),
    hasCache: reading.hasCache || key!.hasCache || value!.hasCache,
    maskKind: maskKind(rest.bias),
  };
}

function typeReason(type: DataType | undefined): string {
  const name = type === undefined ? 'unknown' : DataType[type].toLowerCase();
  return `its element type is ${name}, neither float32 nor float16`;
}

function maskKind(bias: readonly BiasTerm[]): FoundAttention['maskKind'] {
  if (bias.length === 0) return 'none';
  const additive = bias.filter((term) => term.kind === 'add').length;
  if (additive === bias.length) return 'additive';
  return additive === 0 ? 'boolean' : 'mixed';
}

/** The name of a node, or of its first output where it has none. */
export function nameOf(node: NodeProto): string {
  return node.name || (node.output[0] ?? '');
}
