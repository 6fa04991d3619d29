import { intAttribute, intsAttribute } from '../attributes.js';
import { DataType } from '../element-types.js';
import { type Fact, type NodeFacts, nothing } from '../facts.js';
import { freshSymbol, product, quotient } from '../symbols.js';

export function attention(at: NodeFacts): Fact[] {
  if (at.node.domain === 'com.microsoft') return [projectedAttention(at)];
  const { type, dims } = at.input(0);
  const value = at.input(2).dims;
  if (dims?.length === 4 && value?.length === 4) return [{ type, dims: [...dims.slice(0, 3), value[3]!] }];
  return [{ type, dims: dims?.length === 3 ? [...dims.slice(0, 2), freshSymbol()] : undefined }];
}

/** com.microsoft Attention: query, key and value are projections of one input. */
function projectedAttention(at: NodeFacts): Fact {
  const { type, dims } = at.input(0);
  const all = at.input(1).dims?.[1];
  const size =
    intsAttribute(at.node, 'qkv_hidden_sizes')?.[2] ?? (all === undefined ? undefined : quotient(all, 3));
  return { type, dims: dims?.length === 3 ? [...dims.slice(0, 2), size ?? freshSymbol()] : undefined };
}

/** com.microsoft MultiHeadAttention: the output is as wide as the value. */
export function multiHeadAttention(at: NodeFacts): Fact {
  const { type, dims } = at.input(0);
  const value = at.input(2).dims;
  return { type, dims: dims && [...dims.slice(0, 2), value?.length === 3 ? value[2]! : freshSymbol()] };
}

/** com.microsoft GroupQueryAttention: the output is as wide as the query, which key and value may be packed with. */
export function groupQueryAttention(at: NodeFacts): Fact {
  const { type, dims } = at.input(0);
  const heads = intAttribute(at.node, 'num_heads', 1);
  const packed = at.node.input[1] ? 0 : 2 * intAttribute(at.node, 'kv_num_heads', 1);
  const size = dims?.[2] === undefined ? undefined : quotient(dims[2], heads + packed);
  const width = size === undefined ? freshSymbol() : product([size, heads]);
  return { type, dims: dims && [...dims.slice(0, 2), width] };
}

/** The sum that is normalised is the fourth output. */
export function skipNormalization(at: NodeFacts): Fact[] {
  const { type, dims } = at.input(0);
  return [{ type, dims }, nothing, nothing, { type, dims }];
}

export function embedLayerNormalization(at: NodeFacts): Fact[] {
  const ids = at.input(0).dims;
  const { type, dims } = at.input(2);
  const embedded = { type, dims: ids && [...ids, dims?.[1] ?? freshSymbol()] };
  return [embedded, { type: DataType.INT32, dims: ids?.slice(0, 1) }, embedded];
}
