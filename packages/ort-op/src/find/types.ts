import type { DataType, GraphIndex, NodeProto } from '../model/index.js';
import type { Dim } from '../model/symbols.js';

/**
 * A tensor of the graph as attention reads it: the value itself, or its axes permuted. Of three axes it is
 * [batch, length, size], attention with a single head; of four [batch, heads, length, size].
 */
export interface Operand {
  readonly value: string;
  /** Axis `a` of the operand is axis `permutation[a]` of the value; the identity where nothing changes. */
  readonly permutation: readonly number[];
}

/** How attentions are read. */
export interface ReadOptions {
  /**
   * Take it that all entries of a batch have as many tokens as their cache has places, where a node has lengths that say
   * so when it runs: new tokens are then behind the past ones, and masks are bands. {@link FoundAttention.tokenCounts}
   * tells of it.
   */
  readonly unpaddedCaches?: boolean;
}

/** Something that changes the scores before the softmax, added to them in the end. */
export interface BiasTerm {
  /**
   * What the value holds: numbers to add, booleans that keep a score where true, or booleans that mask it
   * where true.
   */
  readonly kind: 'add' | 'keep' | 'mask';
  readonly value: string;
  readonly type: DataType | undefined;
  readonly dims: readonly Dim[] | undefined;
  /** Numbers to add are multiplied by this; a scale that the model applies after adding them. */
  readonly factor: number;
  /** The score that booleans put in place of a masked one. */
  readonly fill: number;
  /** Shape of the scores the value is broadcast to. */
  readonly scores: readonly Dim[] | undefined;
  /** Given where the term masks all keys outside of this band with -Infinity, and does nothing else. */
  readonly band?: Band;
}

/**
 * Keys that a query may see by position: `left` before its own and `right` after it, -1 for no limit. Query i of S
 * stands at key i + T - S of T, so that the last one stands at the last key.
 */
export interface Band {
  readonly left: number;
  readonly right: number;
}

/** What a user learns about an attention. */
export interface AttentionSummary {
  /** Of query, key, value and output. */
  readonly elementType: 'float32' | 'float16';
  /** Names of the nodes that compute it, from the scores to the output. */
  readonly nodes: readonly string[];
  /** Name of the value that is its output. */
  readonly output: string;
  /** Its number among the attentions of the model, in graph order, from 0. */
  readonly layer: number;
  /** Undefined where the model does not fix it. */
  readonly heads: number | undefined;
  readonly kvHeads: number | undefined;
  readonly headSize: number | undefined;
  readonly valueHeadSize: number | undefined;
  readonly scale: number;
  /** Scores become softcap * tanh(score / softcap) before masks; 0 leaves them. */
  readonly softcap: number;
  /** Query, key and value are projections of the same activations. */
  readonly selfAttention: boolean;
  readonly maskKind: 'none' | 'additive' | 'boolean' | 'mixed';
  /** Key and value continue those of an earlier run. */
  readonly hasCache: boolean;
}

/** An attention in a model, with all that is needed to replace it. */
export interface FoundAttention extends Omit<AttentionSummary, 'elementType'> {
  /** The graph it is in. */
  readonly graph: GraphIndex;
  /** Element type of query, key, value and output: float32 or float16. */
  readonly type: DataType;
  readonly query: Operand;
  /** Before its heads are repeated for the query heads that share them, like the value. */
  readonly key: Operand;
  readonly value: Operand;
  readonly bias: readonly BiasTerm[];
  /**
   * Tokens of each entry of the batch after a run, less one: an int32 value whose elements must all be the length of the
   * keys less one, as it was read with {@link ReadOptions}.
   */
  readonly tokenCounts?: string;
  /** The node it was found by: a softmax, or a node that is all of an attention. */
  readonly anchor: NodeProto;
  /** Nodes that read the shape of the scores or of the probabilities, which are no more when it is replaced. */
  readonly shapeReaders: readonly NodeProto[];
  /** The node whose first output is the attention's, and to be replaced. */
  readonly outputNode: NodeProto;
  /** Nodes to put before the replacement: query, key, value and bias may be their outputs. */
  readonly prelude: readonly NodeProto[];
  /**
   * Axes of the output: `heads` is [batch, heads, length, size], `folded` [batch x heads, length, size], `merged`
   * [batch, length, heads x size].
   */
  readonly outputLayout: 'heads' | 'folded' | 'merged';
  /** Axis `a` of the output is axis `outputPermutation[a]` of what its layout says; the identity if not given. */
  readonly outputPermutation?: readonly number[];
}

/** A softmax that is attention, but not of a form that can be replaced. */
export interface LeftAttention {
  /** Name of the softmax node, or of the attention node. */
  readonly node: string;
  readonly reason: string;
}
