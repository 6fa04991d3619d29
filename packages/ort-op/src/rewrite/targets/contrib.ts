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

  emit(list, found, { layer, output, bias }) {
    const heads = found.heads ?? 1;
    const query = operandValue(list, found.query);
    const [key, value] = [found.key, found.value].map((each) =>
      repeated(list, found, operandValue(list, each)),
    );
    const name = `MultiHeadAttention_${layer}`;
    const mixed = `mxattn.${layer}.mixed`;
    list.push({
      opType: 'MultiHeadAttention',
      domain,
      name,
      input: [
        merged(list, query),
        merged(list, key ?? ''),
        merged(list, value ?? ''),
        ...(bias === undefined ? [] : ['', '', forEachQueryAndKey(list, bias, query, key ?? '')]),
      ],
      output: [mixed],
      attribute: [attributes.int('num_heads', heads), attributes.float('scale', found.scale)],
    });
    const split = list.add('Reshape', [mixed, list.ints(0, 0, heads, -1)]);
    if (bias === undefined) list.add('Transpose', [split], [attributes.ints('perm', [0, 2, 1, 3])], output);
    else zeroWhereMasked(list, bias, list.transpose(split, [0, 2, 1, 3]), output);
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

/** Each head of a key or value as often as there are query heads that share it. */
function repeated(list: NodeList, { heads = 1, kvHeads = 1 }: FoundAttention, value: string): string {
  if (heads === kvHeads) return value;
  const times = heads / kvHeads;
  const expanded = list.add('Expand', [list.unsqueeze(value, 2), list.ints(1, 1, times, 1, 1)]);
  const shape = list.concat(list.ints(0, heads), list.sizes(value, 2, 4));
  return list.add('Reshape', [expanded, shape]);
}
