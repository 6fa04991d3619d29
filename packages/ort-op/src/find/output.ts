import { scalar } from '../model/facts.js';
import type { GraphIndex, NodeProto } from '../model/index.js';
import { firstOf, identity, sameLastTwo } from './operands.js';
import type { Operand } from './types.js';

/** What a model does with the probabilities. */
export interface Output {
  readonly value: Operand;
  /** The nodes from behind the softmax to the product with the values. */
  readonly nodes: readonly NodeProto[];
}

/** One step from the probabilities towards the output: the nodes of the step and where they lead. */
type ProbabilityStep = (
  graph: GraphIndex,
  at: string,
) => { nodes: readonly NodeProto[]; next: string } | undefined;

const steps: readonly ProbabilityStep[] = [passed, cleaned];

/** Walks from the probabilities to their product with the values. The reason why not, where there is none. */
export function matchOutput(
  graph: GraphIndex,
  probabilities: string,
): Output | { reason: string } | undefined {
  const nodes: NodeProto[] = [];
  let at = probabilities;
  for (;;) {
    const step = firstOf(steps, (each) => each(graph, at));
    if (!step) break;
    nodes.push(...step.nodes);
    at = step.next;
  }
  const users = dataUsers(graph, at);
  const last = users.find((node) => node.opType === 'MatMul' && node.input[0] === at);
  const value = last?.input[1];
  if (!last || !value) return undefined;
  if (users.length > 1) return { reason: 'its probabilities are used a second time' };
  const rank = graph.fact(value).dims?.length;
  if (rank === undefined) return { reason: 'the shape of its values is unknown' };
  return { value: { value, permutation: identity(rank) }, nodes: [...nodes, last] };
}

/** Nodes that change nothing, or only fold batch and heads. */
function passed(graph: GraphIndex, at: string): ReturnType<ProbabilityStep> {
  const users = dataUsers(graph, at);
  const node = users[0];
  const next = node?.output[0];
  if (users.length !== 1 || !node || !next) return undefined;
  const [from, to] = [graph.fact(at), graph.fact(next)];
  const plain =
    node.opType === 'Identity' ||
    node.opType === 'Dropout' ||
    (node.opType === 'Cast' && from.type === to.type) ||
    (node.opType === 'Reshape' && from.dims && to.dims && sameLastTwo(from.dims, to.dims));
  return plain ? { nodes: [node], next } : undefined;
}

/** Where(IsNaN(p), 0, p): fully masked rows become zeros. */
function cleaned(graph: GraphIndex, at: string): ReturnType<ProbabilityStep> {
  const users = dataUsers(graph, at);
  const test = users.find((node) => node.opType === 'IsNaN');
  const where = users.find((node) => node.opType === 'Where' && node.input[2] === at);
  if (users.length !== 2 || !test || !where || where.input[0] !== test.output[0]) return undefined;
  return scalar(graph.fact(where.input[1])) === 0
    ? { nodes: [test, where], next: where.output[0] ?? '' }
    : undefined;
}

/** The nodes that use more of a value than its shape. */
function dataUsers(graph: GraphIndex, value: string): NodeProto[] {
  return graph.consumers(value).filter((node) => node.opType !== 'Shape');
}
