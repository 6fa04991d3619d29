import { fusedDomain, fusedOperator } from '../model/fused-operator.js';
import { defaultDomain } from '../model/graph-index.js';
import type { GraphIndex, NodeProto } from '../model/index.js';
import { readAttention } from './nodes/attention.js';
import { readFusedAttention } from './nodes/fused-attention.js';
import { readGroupQueryAttention } from './nodes/group-query-attention.js';
import { readMicrosoftAttention } from './nodes/microsoft-attention.js';
import { readMultiHeadAttention } from './nodes/multi-head-attention.js';
import type { Reading, Reason } from './reading.js';
import type { ReadOptions } from './types.js';

type NodeReader = (graph: GraphIndex, node: NodeProto, options: ReadOptions) => Reading | Reason;

/** Operators that are a whole attention, by domain and name. */
const readers: ReadonlyMap<string, NodeReader> = new Map<string, NodeReader>([
  ['.Attention', readAttention],
  [`${fusedDomain}.${fusedOperator}`, readFusedAttention],
  ['com.microsoft.Attention', readMicrosoftAttention],
  ['com.microsoft.GroupQueryAttention', readGroupQueryAttention],
  ['com.microsoft.MultiHeadAttention', readMultiHeadAttention],
  ...unsupported('com.microsoft', [
    'DecoderMaskedMultiHeadAttention',
    'DecoderMaskedSelfAttention',
    'LinearAttention',
    'LongformerAttention',
    'PackedAttention',
    'PackedMultiHeadAttention',
    'PagedAttention',
    'QAttention',
    'QOrderedAttention',
    'SparseAttention',
  ]),
]);

/** The attention that a node is; a reason where it cannot be read; undefined where the node is none. */
export function readFusedNode(
  graph: GraphIndex,
  node: NodeProto,
  options: ReadOptions,
): Reading | Reason | undefined {
  return readers.get(keyOf(node))?.(graph, node, options);
}

/** Whether a node is all of an attention. */
export function isFusedNode(node: NodeProto): boolean {
  return readers.has(keyOf(node));
}

function keyOf(node: NodeProto): string {
  return `${defaultDomain(node.domain)}.${node.opType}`;
}

function unsupported(domain: string, names: readonly string[]): [string, NodeReader][] {
  return names.map((name) => [
    `${domain}.${name}`,
    () => ({ reason: `${domain} ${name} is not supported yet` }),
  ]);
}
