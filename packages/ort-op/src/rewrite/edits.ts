import { usedValues } from '../model/graph-index.js';
import type { GraphIndex, GraphProto, NodeProto, TensorProto } from '../model/index.js';
import { mapBodies } from '../model/inline.js';
import { copy } from '../model/messages.js';
import type { ValueInfoProto } from '../model/onnx_pb.js';

/** What is to be added to a graph. */
interface Added {
  readonly inputs: readonly ValueInfoProto[];
  /** Values of the graph. */
  readonly outputs: readonly ValueInfoProto[];
  readonly initializers: readonly TensorProto[];
}

/** What is to change in a model's graphs. Nodes that nothing needs afterwards go without being named. */
export class Edits {
  private readonly replacements = new Map<NodeProto, readonly NodeProto[]>();

  /** Puts new nodes in the place of one; they compute all its outputs that are used. */
  replace(node: NodeProto, by: readonly NodeProto[]): void {
    this.replacements.set(node, by);
  }

  /** The graph with the edits made in it and its bodies. The graph itself stays as it is. */
  apply(index: GraphIndex, add: Added): GraphProto {
    const output = [...index.graph.output, ...add.outputs];
    const graph = copy(index.graph, { output });
    const nodes = graph.node.flatMap(
      (node) => this.replacements.get(node) ?? [this.applyToBodies(node, index)],
    );
    const before = graph.node.flatMap((node) => [...usedValues(node)]);
    const added = graph.node.flatMap((node) => this.replacements.get(node) ?? []);
    const candidates = new Set([...before, ...added.flatMap(({ output }) => output)]);
    const unused = findUnused(graph, nodes, candidates);
    return copy(graph, {
      node: nodes.filter((node) => !unused.nodes.has(node)),
      initializer: [
        ...graph.initializer.filter((tensor) => !unused.values.has(tensor.name)),
        ...add.initializers,
      ],
      input: [...graph.input, ...add.inputs],
      valueInfo: graph.valueInfo.filter((info) => !unused.values.has(info.name)),
    });
  }

  private applyToBodies(node: NodeProto, index: GraphIndex): NodeProto {
    return mapBodies(node, (body) => {
      const inner = index.inner.find((each) => each.graph === body);
      return inner ? this.apply(inner, { inputs: [], outputs: [], initializers: [] }) : body;
    });
  }
}

/** Which of the candidates nothing uses, and the nodes that only they needed. */
function findUnused(
  graph: GraphProto,
  nodes: readonly NodeProto[],
  candidates: ReadonlySet<string>,
): { nodes: Set<NodeProto>; values: Set<string> } {
  const uses = new Map<string, number>();
  const count = (value: string, change: number) => {
    const result = (uses.get(value) ?? 0) + change;
    uses.set(value, result);
    return result;
  };
  for (const output of graph.output) count(output.name, 1);
  for (const node of nodes) for (const value of usedValues(node)) count(value, 1);
  const makers = new Map(nodes.flatMap((node) => node.output.map((output) => [output, node] as const)));
  const inputs = new Set(graph.input.map((input) => input.name));
  const unused = { nodes: new Set<NodeProto>(), values: new Set<string>() };
  const pending = [...candidates].filter((value) => !uses.get(value));
  for (let value = pending.pop(); value !== undefined; value = pending.pop()) {
    if (!inputs.has(value)) unused.values.add(value);
    const maker = makers.get(value);
    if (!maker || unused.nodes.has(maker) || maker.output.some((output) => uses.get(output))) continue;
    unused.nodes.add(maker);
    for (const input of usedValues(maker)) if (count(input, -1) === 0) pending.push(input);
  }
  return unused;
}
