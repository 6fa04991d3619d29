import type { DataType, NodeProto } from '../model/index.js';
import type { FoundAttention } from './types.js';

/** Why an attention is left as it is. */
export interface Reason {
  readonly reason: string;
}

type Derived = 'graph' | 'output' | 'type' | 'nodes' | 'layer' | 'selfAttention' | 'hasCache' | 'maskKind';

/** An attention as read from the graph around one node. */
export interface Reading extends Omit<FoundAttention, Derived> {
  readonly nodes: readonly NodeProto[];
  /** Values of the graph that query, key and value come from. */
  readonly sources: readonly [query: string, key: string, value: string];
  /** Element type of the query. */
  readonly type: DataType | undefined;
  /** The node itself continues the keys and values of an earlier run. */
  readonly hasCache?: boolean;
}
