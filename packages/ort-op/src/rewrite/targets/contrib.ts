import type { FoundAttention } from '../../find/index.js';
import { attributes, type NodeList } from '../../model/build.js';
import { DataType } from '../../model/index.js';
import { tightestBand } from '../band.js';
import { biasObstacle, forEachQueryAndKey } from '../bias.js';
import { zeroWhereMasked } from '../masked-rows.js';
import { operandValue } from '../operand.js';
import { nothingAdded, type Place, type Target } from './target.js';

const domain = 'com.microsoft';

/**
 * ONNX Runtime's own fused operators, for runtimes without the FusedAttention operator: GroupQueryAttention where it
 * computes the same, which is quicker since it skips what is masked; else MultiHeadAttention.
 */
export const contrib: Target = {
  obstacle(found) {
    if (found.heads === undefined || found.kvHeads === undefined) return 'its number of heads is unknown';
    if (found.anchor.domain === domain) return `it is a ${found.anchor.opType} node already`;
    if (fitsGroupQueryAttention(found)) return undefined;
    if (found.softcap !== 0) return 'its scores are soft-capped, which MultiHeadAttention does not do';
    return biasObstacle(found);
  },

  masksBand: fitsGroupQueryAttention,

  emit(list, found, place) {
    if (place.band) groupQueryAttention(list, found, place);
    else multiHeadAttention(list, found, place);
  },

  additions(model) {
    const imported = model.opsetImport.some((each) => each.domain === domain);
    return imported ? nothingAdded() : { ...nothingAdded(), opsets: [{ domain, version: 1 }] };
  },
};

/**
 * GroupQueryAttention is always causal, takes no other mask that leaves rows without keys, wants as many keys as queries
 * where there is no cache, and a cache apart from the keys of this run; with one it takes several tokens for a batch of
 * one alone.
 */
function fitsGroupQueryAttention(found: FoundAttention): boolean {
  const { bias, hasCache, selfAttention, headSize, valueHeadSize } = found;
  const band = tightestBand(found);
  const causal = band?.right === 0 && band.left < 0 && bias.every((term) => term.band);
  const shaped = headSize !== undefined && headSize === valueHeadSize && headSize % 8 === 0;
  return causal && shaped && selfAttention && !hasCache;
}

function groupQueryAttention(list: NodeList, found: FoundAttention, { layer, output }: Place): void {
  const { heads = 1, kvHeads = 1, scale, softcap } = found;
  const [query, key, value] = [found.query, found.key, found.value].map((each) =>
    merged(list, operandValue(list, each)),
  ) as [string, string, string];
  const [batch, length] = [list.sizes(query, 0, 1), list.sizes(query, 1, 2)];
  // For each entry of the batch, its tokens but one; and the tokens of the longest.
  const last = list.cast(list.add('Sub', [length, list.ints(1)]), undefined, DataType.INT32);
  const total = list.cast(list.add('Squeeze', [length]), undefined, DataType.INT32);
  const mixed = `mxattn.${layer}.mixed`;
  list.push({
    opType: 'GroupQueryAttention',
    domain,
    name: `GroupQueryAttention_${layer}`,
    input: [query, key, value, '', '', list.add('Expand', [last, batch]), total],
    output: [mixed, `mxattn.${layer}.present_key`, `mxattn.${layer}.present_value`],
    attribute: [
      attributes.int('num_heads', heads),
      attributes.int('kv_num_heads', kvHeads),
      attributes.float('scale', scale),
      ...(softcap === 0 ? [] : [attributes.float('softcap', softcap)]),
    ],
  });
  const split = list.add('Reshape', [mixed, list.ints(0, 0, heads, -1)]);
  list.add('Transpose', [split], [attributes.ints('perm', [0, 2, 1, 3])], output);
}

// The query heads that share a key head follow each other, so they are given as one head with more rows: keys and values
// need no copies.
function multiHeadAttention(list: NodeList, found: FoundAttention, { layer, output, bias }: Place): void {
  const { heads = 1, kvHeads = 1 } = found;
  const query = operandValue(list, found.query);
  const key = operandValue(list, found.key);
  const value = operandValue(list, found.value);
  const mixed = `mxattn.${layer}.mixed`;
  list.push({
    opType: 'MultiHeadAttention',
    domain,
    name: `MultiHeadAttention_${layer}`,
    input: [
      merged(list, inRows(list, query, kvHeads)),
      merged(list, key),
      merged(list, value),
      ...(bias === undefined ? [] : ['', '', biasInRows(list, found, bias, [query, key])]),
    ],
    output: [mixed],
    attribute: [attributes.int('num_heads', kvHeads), attributes.float('scale', found.scale)],
  });
  const split = list.add('Reshape', [mixed, list.ints(0, 0, kvHeads, -1)]);
  const inHeads = list.transpose(split, [0, 2, 1, 3]);
  const apart = bias === undefined ? [output] : [];
  const all = list.add('Reshape', [inHeads, list.ints(0, heads, -1, 0)], [], ...apart);
  if (bias !== undefined) zeroWhereMasked(list, bias, { value: all, type: found.type }, output);
}

/** [batch, heads, length, size] as [batch, length, heads x size]. */
export function merged(list: NodeList, value: string): string {
  return list.add('Reshape', [list.transpose(value, [0, 2, 1, 3]), list.ints(0, 0, -1)]);
}

/** [batch, heads, length, size] with the rows of all heads that share a key head behind each other. */
function inRows(list: NodeList, value: string, kvHeads: number): string {
  return list.add('Reshape', [value, list.ints(0, kvHeads, -1, 0)]);
}

/** The bias for queries whose heads are rows. */
function biasInRows(
  list: NodeList,
  found: FoundAttention,
  bias: string,
  operands: readonly [query: string, key: string],
): string {
  const { heads = 1, kvHeads = 1 } = found;
  const sameForHeads = found.bias.every(
    ({ scores, dims }) => scores?.length === 4 && (dims?.at(-3) ?? 1) === 1,
  );
  const each = sameForHeads ? heads / kvHeads : heads;
  const expanded = forEachQueryAndKey(list, found, bias, operands, heads === kvHeads ? 1 : each);
  return heads === kvHeads ? expanded : inRows(list, expanded, sameForHeads ? 1 : kvHeads);
}
