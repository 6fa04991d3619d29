import type { Band, FoundAttention } from '../../find/index.js';
import type { NodeList } from '../../model/build.js';
import type { ModelProto, TensorProto } from '../../model/index.js';
import type { FunctionProto, ValueInfoProto } from '../../model/onnx_pb.js';

/** What attentions are replaced by. */
export interface Target {
  /** Why this target cannot compute an attention with equal results; undefined where it can. */
  obstacle(attention: FoundAttention): string | undefined;
  /** Whether it masks an attention's band by position, without a tensor; never, if not given. */
  masksBand?(attention: FoundAttention): boolean;
  /** Appends the nodes that compute an attention. */
  emit(list: NodeList, attention: FoundAttention, place: Place): void;
  /** What the model needs besides, when these attentions were replaced. */
  additions(model: ModelProto, replaced: readonly FoundAttention[]): Additions;
}

/** Where a replacement goes. */
export interface Place {
  /** Its number among the attentions that are replaced. */
  readonly layer: number;
  /** The value to compute. */
  readonly output: string;
  /** All that is added to the scores, if anything. */
  readonly bias: string | undefined;
  /** The band that is to be masked beside that, if any. */
  readonly band: Band | undefined;
}

/** What a target adds to a model. */
export interface Additions {
  readonly inputs: ValueInfoProto[];
  readonly initializers: TensorProto[];
  readonly functions: FunctionProto[];
  readonly opsets: readonly { domain: string; version: number }[];
  /** The lowest IR version that has all of this. */
  readonly irVersion: number;
}

/** For targets whose nodes need nothing else. */
export function nothingAdded(): Additions {
  return { inputs: [], initializers: [], functions: [], opsets: [], irVersion: 0 };
}
