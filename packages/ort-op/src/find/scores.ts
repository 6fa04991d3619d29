import { tensorAttribute } from '../model/attributes.js';
import { scalar } from '../model/facts.js';
import {
  floatAttribute,
  type GraphIndex,
  intAttribute,
  type NodeProto,
  smallTensor,
} from '../model/index.js';
import { scoresEinsum } from './einsum.js';
import { firstOf, identity, isInnerCast, sameLastTwo, scaledInput, swapLastTwo } from './operands.js';
import type { BiasTerm, Operand } from './types.js';

/** How a model computes the scores that go into a softmax. */
export interface Scores {
  readonly query: Operand;
  readonly key: Operand;
  readonly scale: number;
  readonly softcap: number;
  readonly bias: readonly BiasTerm[];
  /** The nodes on the way, from the matrix product to the last one before the softmax. */
  readonly nodes: readonly NodeProto[];
}

/** The scores behind one input of a node, if they lead to a matrix product. */
type Inner = (value: string) => Scores | undefined;

/** Recognises one kind of node on the way; the rest of the way is what `inner` makes of its inputs. */
type ScoreMatcher = (graph: GraphIndex, node: NodeProto, inner: Inner) => Scores | undefined;

const matchers: readonly ScoreMatcher[] = [
  product,
  contracted,
  scaled,
  softcapped,
  biased,
  masked,
  passed,
  folded,
];

/** No model takes more nodes than this from the product to the softmax. */
const longestWay = 16;

/** Walks from the input of a softmax back to the product of query and key. */
export function matchScores(graph: GraphIndex, value: string): Scores | undefined {
  const known = new Map<string, Scores | undefined>();
  const walk = (at: string, left: number): Scores | undefined => {
    const node = graph.producer(at);
    if (!node || left === 0) return undefined;
    if (known.has(at)) return known.get(at);
    known.set(at, undefined);
    const found = firstOf(matchers, (matcher) => matcher(graph, node, (next) => walk(next, left - 1)));
    const scores = found && { ...found, nodes: [...found.nodes, node] };
    known.set(at, scores);
    return scores;
  };
  return walk(value, longestWay);
}

/** query x transposed key, neither of them a weight. */
function product(graph: GraphIndex, node: NodeProto): Scores | undefined {
  const [query, key] = node.input;
  if ((node.opType !== 'MatMul' && node.opType !== 'FusedMatMul') || !query || !key) return undefined;
  const rank = graph.fact(query).dims?.length ?? graph.fact(key).dims?.length;
  if (rank === undefined || rank < 3 || graph.fact(key).dims?.length !== rank) return undefined;
  if (graph.initializer(query) || graph.initializer(key) || intAttribute(node, 'transA', 0) === 1)
    return undefined;
  return {
    query: { value: query, permutation: identity(rank) },
    key: {
      value: key,
      permutation: intAttribute(node, 'transB', 0) === 1 ? identity(rank) : swapLastTwo(rank),
    },
    scale: floatAttribute(node, 'alpha', 1),
    softcap: 0,
    bias: [],
    nodes: [],
  };
}

/** query and key as an Einsum. */
function contracted(_: GraphIndex, node: NodeProto): Scores | undefined {
  const found = scoresEinsum(node);
  return found && { ...found, scale: 1, softcap: 0, bias: [], nodes: [] };
}

/** Mul or Div by a number. */
function scaled(graph: GraphIndex, node: NodeProto, inner: Inner): Scores | undefined {
  const found = scaledInput(graph, node);
  if (!found) return undefined;
  const scores = inner(found.value);
  // A factor behind the softcap is no factor of the raw scores.
  if (scores?.softcap !== 0) return undefined;
  const { factor } = found;
  return {
    ...scores,
    scale: scores.scale * factor,
    bias: scores.bias.map((term) => ({ ...term, factor: term.factor * factor, fill: term.fill * factor })),
  };
}

/** cap * tanh(scores / cap). */
function softcapped(graph: GraphIndex, node: NodeProto, inner: Inner): Scores | undefined {
  const found = scaledInput(graph, node);
  const tanh = found && graph.producer(found.value);
  const scores = tanh?.opType === 'Tanh' ? inner(tanh.input[0] ?? '') : undefined;
  if (!tanh || !found || !scores || scores.softcap !== 0 || scores.bias.length > 0) return undefined;
  return {
    ...scores,
    softcap: found.factor,
    scale: scores.scale * found.factor,
    nodes: [...scores.nodes, tanh],
  };
}

/** Add of a mask or of a position bias. */
function biased(graph: GraphIndex, node: NodeProto, inner: Inner): Scores | undefined {
  const [a, b] = node.input;
  if (node.opType !== 'Add' || !a || !b) return undefined;
  return firstOf(
    [
      { scores: inner(a), value: b },
      { scores: inner(b), value: a },
    ],
    ({ scores, value }) => scores && addTerm(graph, node, scores, { kind: 'add', value, fill: 0 }),
  );
}

/** Where that puts a very low number in the place of some scores. */
function masked(graph: GraphIndex, node: NodeProto, inner: Inner): Scores | undefined {
  const [condition, yes, no] = node.input;
  if (node.opType !== 'Where' || !condition || !yes || !no) return undefined;
  return firstOf(
    [
      { kind: 'mask', fill: yes, scores: no },
      { kind: 'keep', fill: no, scores: yes },
    ] as const,
    (form) => {
      const fill = uniformValue(graph, form.fill);
      const scores = fill !== undefined && fill <= lowEnough ? inner(form.scores) : undefined;
      return scores && addTerm(graph, node, scores, { kind: form.kind, value: condition, fill: fill! });
    },
  );
}

/** The number that all elements of a constant tensor are. */
function uniformValue(graph: GraphIndex, value: string): number | undefined {
  const known = scalar(graph.fact(value));
  const node = graph.producer(value);
  if (known !== undefined || !node) return known;
  if (node.opType === 'Expand' || node.opType === 'Cast') return uniformValue(graph, node.input[0] ?? '');
  const fill = node.opType === 'ConstantOfShape' ? tensorAttribute(node, 'value') : undefined;
  return fill && smallTensor(fill)?.values[0];
}

/** Scores this low take no part in a softmax; models use it and everything below as "masked". */
const lowEnough = -1e4;

function addTerm(
  graph: GraphIndex,
  node: NodeProto,
  scores: Scores,
  term: Pick<BiasTerm, 'kind' | 'value' | 'fill'>,
): Scores {
  const { type, dims } = graph.fact(term.value);
  return {
    ...scores,
    bias: [...scores.bias, { ...term, type, dims, factor: 1, scores: graph.fact(node.output[0]).dims }],
  };
}

/** Nodes that change nothing. */
function passed(graph: GraphIndex, node: NodeProto, inner: Inner): Scores | undefined {
  const input = node.input[0] ?? '';
  const plain = node.opType === 'Identity' || node.opType === 'Dropout' || isInnerCast(graph, node);
  return plain ? inner(input) : undefined;
}

/** A Reshape that only folds or unfolds batch and heads. */
function folded(graph: GraphIndex, node: NodeProto, inner: Inner): Scores | undefined {
  const input = node.input[0] ?? '';
  const [from, to] = [graph.fact(input).dims, graph.fact(node.output[0]).dims];
  return node.opType === 'Reshape' && from && to && sameLastTwo(from, to) ? inner(input) : undefined;
}
