import { create } from '@bufbuild/protobuf';
import { attributes, NodeList } from '../../model/build.js';
import { fusedDomain, fusedOperator } from '../../model/fused-operator.js';
import { type FunctionProto, FunctionProtoSchema } from '../../model/onnx_pb.js';
import { zeroWhereMasked } from '../masked-rows.js';

/**
 * FusedAttention as a function of standard operators: exact attention in float32, whatever the precision
 * asked for.
 *
 * @param opset version of the default operator set, that of the model.
 */
export function fusedAttentionBody(opset: number): FunctionProto {
  const body = new NodeList('', opset);

  // The query heads that share a key head follow each other, so they can be read as one head with more rows.
  const batch = body.sizes('query', 0, 1);
  const kvHeads = body.sizes('key', 1, 2);
  const keyLength = body.sizes('key', 2, 3);
  const grouped = (value: string, size: string) =>
    body.add('Reshape', [value, body.concat(batch, kvHeads, body.ints(-1), size)]);
  const ungrouped = (value: string, size: string) =>
    body.add('Reshape', [value, body.concat(body.sizes('query', 0, 3), size)]);

  const scaled = body.add('Mul', ['query', scaleParameter(body)]);
  const keyColumns = body.transpose('key', [0, 1, 3, 2]);
  const scores = body.add('MatMul', [grouped(scaled, body.sizes('query', 3, 4)), keyColumns]);
  const biased = body.add('Add', [ungrouped(scores, keyLength), 'bias']);
  const probabilities = body.add('Softmax', [biased], [attributes.int('axis', 3)]);
  const mixed = ungrouped(
    body.add('MatMul', [grouped(probabilities, keyLength), 'value']),
    body.sizes('value', 3, 4),
  );

  const output = zeroWhereMasked(body, 'bias', mixed, 'output');
  return create(FunctionProtoSchema, {
    domain: fusedDomain,
    name: fusedOperator,
    input: ['query', 'key', 'value', 'bias', 'precision'],
    output: [output],
    attribute: ['scale', 'layer'],
    node: body.nodes,
    opsetImport: [{ domain: '', version: BigInt(opset) }],
  });
}

function scaleParameter(body: NodeList): string {
  if (body.opset >= 12) return body.add('Constant', [], [attributes.floatParameter('value_float', 'scale')]);
  // A Constant that takes a parameter came with opset 12. Selu of 1 is its gamma.
  return body.add('Selu', [body.float(1)], [attributes.floatParameter('gamma', 'scale')]);
}
