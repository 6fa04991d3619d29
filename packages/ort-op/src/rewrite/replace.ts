import type { FoundAttention } from '../find/index.js';
import { isIdentity } from '../find/operands.js';
import { attributes, NodeList } from '../model/build.js';
import type { NodeProto } from '../model/index.js';
import { withoutBand } from './band.js';
import type { Biases } from './bias.js';
import type { Edits } from './edits.js';
import { batchAndHeads, lengthOf } from './operand.js';
import { instead } from './shape-reader.js';
import type { Target } from './targets/target.js';

/** Puts the nodes of a target in the place of an attention, the `layer`th that is replaced. */
export function replaceAttention(
  edits: Edits,
  target: Target,
  attention: FoundAttention,
  { layer, biases }: { readonly layer: number; readonly biases: Biases },
): void {
  const { graph, outputNode, shapeReaders } = attention;
  const list = new NodeList(`mxattn.${layer}.`, graph.opsets.get('') ?? 1);
  const output = outputNode.output[0] ?? '';
  const { band, rest } = withoutBand(target, attention);
  const bias = biases.valueOf(list, rest);
  if (attention.outputLayout === 'heads' && isIdentity(attention.outputPermutation ?? [])) {
    target.emit(list, rest, { layer, output, bias, band });
  } else {
    const inHeads = `mxattn.${layer}.output`;
    target.emit(list, rest, { layer, output: inHeads, bias, band });
    inLayout(list, attention, inHeads, output);
  }
  edits.replace(outputNode, [...attention.prelude, ...list.nodes]);
  shapeReaders.forEach((reader, number) => {
    const shapes = new NodeList(`mxattn.${layer}.shape${number}.`, list.opset);
    computeShape(shapes, attention, reader);
    edits.replace(reader, shapes.nodes);
  });
}

/** The shape of the scores, as a Shape node gave it that read them. */
function computeShape(list: NodeList, { graph, query, key }: FoundAttention, reader: NodeProto): void {
  const [batch, heads] = batchAndHeads(list, query);
  const folded = graph.fact(reader.input[0]).dims?.length === 3;
  const shape = list.concat(
    ...(folded ? [list.add('Mul', [batch, heads])] : [batch, heads]),
    lengthOf(list, query),
    lengthOf(list, key),
  );
  instead(list, reader, shape);
}

/** The output with its axes as the model has them. */
function inLayout(list: NodeList, attention: FoundAttention, inHeads: string, output: string): void {
  const { outputLayout, outputPermutation = [] } = attention;
  const permutation = [attributes.ints('perm', outputPermutation)];
  if (outputLayout === 'heads') {
    list.add('Transpose', [inHeads], permutation, output);
  } else if (outputLayout === 'merged') {
    list.add('Reshape', [list.transpose(inHeads, [0, 2, 1, 3]), list.ints(0, 0, -1)], [], output);
  } else {
    const shape = list.concat(list.ints(-1), list.sizes(inHeads, 2, 4));
    if (isIdentity(outputPermutation)) list.add('Reshape', [inHeads, shape], [], output);
    else list.add('Transpose', [list.add('Reshape', [inHeads, shape])], permutation, output);
  }
}
