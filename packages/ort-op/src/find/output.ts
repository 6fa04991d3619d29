import { scalar } from '../model/facts.js';
import type { GraphIndex, NodeProto } from '../model/index.js';
import { outputEinsum } from './einsum.js';
import { firstOf, identity, isInnerCast, sameLastTwo } from './operands.js';
import type { Operand } from './types.js';

/** What a model does with the probabilities. */
export interface Output {
  readonly value: Operand;
  /** Axis `a` of the output is axis `outputPermutation[a]` of [batch, heads, length, size]. */
  readonly outputPermutation?: readonly number[];
  /** The nodes from behind the softmax to the product with the values. */
  readonly nodes: readonly NodeProto[];
}

/** One step from the probabilities towards the output: the nodes of the step and where they lead. */
type ProbabilityStep = (
  graph: GraphIndex,
  at: string,
) => { nodes: readonly NodeProto[]; next: string } | undefined;

const steps: readonly ProbabilityStep[] = [passed, cleaned];

/** Walks from the probabilities to their product with the values; a reason where that is not their only use. */
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
  for (const node of users) {
    const found = node.opType === 'MatMul' ? matMulValue(graph, node, at) : outputEinsum(node, at);
    if (!found) continue;
    return users.length === 1
      ? { ...found, nodes: [...nodes, node] }
      : { reason: 'its probabilities are used a second time' };
  }
  return undefined;
}

function matMulValue(
  graph: GraphIndex,
  node: NodeProto,
  probabilities: string,
): { value: Operand } | undefined {
  const [first, value = ''] = node.input;
  const rank = graph.fact(value).dims?.length ?? graph.fact(probabilities).dims?.length;
  if (first !== probabilities || rank === undefined) return undefined;
  return { value: { value, permutation: identity(rank) } };
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
    isInnerCast(graph, node) ||
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
