import { attributes } from '../../model/build.js';
import { biasObstacle, forEachQueryAndKey } from '../bias.js';
import { operandValue } from '../operand.js';
import { nothingAdded, type Target } from './target.js';

/** The Attention operator of ONNX, for models that import operator set 23 or later. */
export const attention: Target = {
  obstacle(found) {
    const opset = found.graph.opsets.get('') ?? 1;
    if (opset < 23) return `Attention needs operator set 23, the model imports ${opset}`;
    if (found.anchor.opType === 'Attention' && found.anchor.domain === '')
      return 'it is an Attention node already';
    return biasObstacle(found);
  },

  emit(list, found, { output, bias }) {
    const query = operandValue(list, found.query);
    const key = operandValue(list, found.key);
    const value = operandValue(list, found.value);
    const mask = bias === undefined ? [] : [forEachQueryAndKey(list, found, bias, [query, key])];
    list.add(
      'Attention',
      [query, key, value, ...mask],
      [
        attributes.float('scale', found.scale),
        ...(found.softcap === 0 ? [] : [attributes.float('softcap', found.softcap)]),
      ],
      output,
    );
  },

  additions: nothingAdded,
};
