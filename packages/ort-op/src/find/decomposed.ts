import { type GraphIndex, intAttribute, type NodeProto } from '../model/index.js';
import type { Dim } from '../model/symbols.js';
import {
  beforeRepeat,
  identity,
  isIdentity,
  querySteps,
  traceOperand,
  unfoldOperand,
  valueSteps,
} from './operands.js';
import { matchOutput } from './output.js';
import type { Reading, Reason } from './reading.js';
import { matchScores, type Scores } from './scores.js';
import type { Operand } from './types.js';

/** The attention around a softmax; a reason where it is one of another form; undefined where it is none. */
export function readSoftmax(graph: GraphIndex, softmax: NodeProto): Reading | Reason | undefined {
  const [input, probabilities] = [softmax.input[0] ?? '', softmax.output[0] ?? ''];
  const output = matchOutput(graph, probabilities);
  if (!output) return undefined;
  if ('reason' in output) return output;
  const scores = matchScores(graph, input);
  if (!scores) {
    return {
      reason: `its scores are not a product of query and key (${graph.producer(input)?.opType ?? 'an input'})`,
    };
  }
  const rank = scores.query.permutation.length;
  const axis = intAttribute(softmax, 'axis', (graph.opsets.get('') ?? 1) >= 13 ? -1 : 1);
  if (axis !== -1 && axis !== rank - 1)
    return { reason: `its softmax is over axis ${axis}, not over the keys` };

  const nodes = [...scores.nodes, softmax, ...output.nodes];
  const readers = otherReaders(graph, nodes);
  if ('reason' in readers) return readers;

  const operands = operandsOf(graph, scores, output.value);
  if (!operands) return { reason: `its query, key and value have ${rank} axes that cannot be told apart` };
  const { query, key, value, scale } = operands;
  const [queryDims, keyDims, valueDims] = [query, key, value].map((operand) => dimsOf(graph, operand));
  const broadcast = broadcastObstacle(queryDims, keyDims, valueDims);
  if (broadcast) return { reason: broadcast };
  const heads = queryDims?.length === 3 ? 1 : queryDims?.[1];
  const elsewhere = scores.bias.some((term) => term.scores?.length === 4 && term.scores[1] !== heads);
  if (rank !== 4 && elsewhere) return { reason: 'its mask and its query split the heads in different ways' };
  return {
    nodes,
    anchor: softmax,
    outputNode: output.nodes.at(-1)!,
    shapeReaders: readers.shapes,
    prelude: [],
    outputLayout: rank === 4 ? 'heads' : 'folded',
    ...(output.outputPermutation ? { outputPermutation: output.outputPermutation } : {}),
    query,
    key,
    value,
    sources: [query.value, key.value, value.value],
    type: graph.fact(query.value).type,
    bias: scores.bias,
    scale,
    softcap: scores.softcap,
    heads: headsOf(queryDims),
    kvHeads: headsOf(valueDims),
    headSize: known(queryDims?.at(-1)),
    valueHeadSize: known(valueDims?.at(-1)),
  };
}

/** Query, key and value with their axes told apart, key and value before their heads are repeated. */
function operandsOf(graph: GraphIndex, scores: Scores, valueOperand: Operand) {
  const starts = [
    { operand: scores.query, steps: querySteps },
    { operand: scores.key, steps: querySteps },
    { operand: valueOperand, steps: valueSteps },
  ];
  const rank = scores.query.permutation.length;
  const trace = rank === 4 ? traceOperand : unfoldOperand;
  let traced = starts.map(({ operand, steps }) => trace(graph, operand, steps));
  // Never split into heads: one head.
  if (rank === 3 && traced.includes(undefined)) {
    traced = starts.map(({ operand, steps }) => traceOperand(graph, operand, steps));
  }
  const [query, key, value] = traced;
  if (!query || !key || !value) return undefined;
  const ranks = new Set([query, key, value].map((operand) => operand.permutation.length));
  if (ranks.size !== 1) return undefined;
  const scale = scores.scale * query.scale * key.scale;
  const [repeatedKey, repeatedValue] = [key, value].map((operand) =>
    isIdentity(operand.permutation) ? beforeRepeat(graph, operand.value) : undefined,
  );
  if (!repeatedKey || !repeatedValue || repeatedKey.times !== repeatedValue.times) {
    return { query, key, value, scale };
  }
  const original = (repeated: { value: string }): Operand => ({
    value: repeated.value,
    permutation: identity(4),
  });
  return { query, key: original(repeatedKey), value: original(repeatedValue), scale };
}

/** Why operands that a matrix product broadcasts are none of an attention. */
function broadcastObstacle(
  query: readonly (Dim | undefined)[] = [],
  key: readonly (Dim | undefined)[] = [],
  value: readonly (Dim | undefined)[] = [],
): string | undefined {
  const batches = [query, key, value].map((dims) => dims[0] === 1);
  if (batches.includes(true) && batches.includes(false))
    return 'its query or its keys are the same for the whole batch';
  const [kvHeads, valueHeads] = [headsOf(key), headsOf(value)];
  if (kvHeads !== undefined && valueHeads !== undefined && kvHeads !== valueHeads) {
    return `it has ${kvHeads} heads of keys and ${valueHeads} of values`;
  }
  return undefined;
}

/**
 * The nodes outside of an attention that read the shape of something inside; a reason why it must stay where
 * one reads more than that.
 */
function otherReaders(graph: GraphIndex, nodes: readonly NodeProto[]): { shapes: NodeProto[] } | Reason {
  const own = new Set(nodes);
  const shapes: NodeProto[] = [];
  for (const node of nodes.slice(0, -1)) {
    const value = node.output[0] ?? '';
    const rank = graph.fact(value).dims?.length ?? 0;
    const what = node.opType === 'Softmax' ? 'its probabilities' : `the outputs of its ${node.opType}`;
    if (graph.isOutput(value)) return { reason: `${what} are an output of the model` };
    for (const reader of graph.consumers(value)) {
      if (own.has(reader)) continue;
      const other = reader.opType !== 'Shape' || (rank !== 3 && rank !== 4);
      if (other)
        return { reason: `${what} are used a second time, by ${reader.opType} ${reader.name}`.trim() };
      shapes.push(reader);
    }
  }
  return { shapes };
}

function dimsOf(graph: GraphIndex, operand: Operand): (Dim | undefined)[] | undefined {
  const dims = graph.fact(operand.value).dims;
  return dims && operand.permutation.map((axis) => dims[axis]);
}

function headsOf(dims: readonly (Dim | undefined)[] | undefined): number | undefined {
  return dims?.length === 3 ? 1 : known(dims?.[1]);
}

function known(dim: Dim | undefined): number | undefined {
  return typeof dim === 'number' ? dim : undefined;
}
