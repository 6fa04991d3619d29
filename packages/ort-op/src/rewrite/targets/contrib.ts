import type { FoundAttention } from '../../find/index.js';
import { attributes, type NodeList } from '../../model/build.js';
import { biasObstacle, forEachQueryAndKey } from '../bias.js';
import { zeroWhereMasked } from '../masked-rows.js';
import { operandValue } from '../operand.js';
import { nothingAdded, type Target } from './target.js';

const domain = 'com.microsoft';

/** ONNX Runtime's own MultiHeadAttention, for runtimes without the FusedAttention operator. */
export const contrib: Target = {
  obstacle(found) {
    if (found.heads === undefined || found.kvHeads === undefined) return 'its number of heads is unknown';
    if (found.softcap !== 0) return 'its scores are soft-capped, which MultiHeadAttention does not do';
    if (found.anchor.domain === domain) return `it is a ${found.anchor.opType} node already`;
    return biasObstacle(found);
  },

  // The query heads that share a key head follow each other, so they are given as one head with more rows: keys and
  // values need no copies. GroupQueryAttention would need the keys of this run apart from those of the cache, takes
  // a cache only for one token or a batch of one, and is causal in all but its newest versions.
  emit(list, found, { layer, output, bias }) {
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
  },

  additions(model) {
    const imported = model.opsetImport.some((each) => each.domain === domain);
    return imported ? nothingAdded() : { ...nothingAdded(), opsets: [{ domain, version: 1 }] };
  },
};

/** [batch, heads, length, size] as [batch, length, heads x size]. */
function merged(list: NodeList, value: string): string {
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
