import { create } from '@bufbuild/protobuf';
import type { FoundAttention } from '../../find/index.js';
import { keyPositions, queryPositions } from '../../find/nodes/parts.js';
import { attributes, NodeList } from '../../model/build.js';
import { fusedDomain, fusedOperator } from '../../model/fused-operator.js';
import { DataType } from '../../model/index.js';
import { type FunctionProto, FunctionProtoSchema } from '../../model/onnx_pb.js';
import { zeroWhereMasked } from '../masked-rows.js';

/** What the attentions of a model need of the function body. */
export type BodyNeeds = readonly Pick<FoundAttention, 'softcap' | 'type' | 'bias'>[];

/**
 * FusedAttention as a function of standard operators: exact attention in float32, whatever the precision
 * asked for.
 *
 * @param opset version of the default operator set, that of the model.
 * @param calls the attentions that call it: what none of them needs is left out.
 */
export function fusedAttentionBody(opset: number, calls: BodyNeeds): FunctionProto {
  const body = new NodeList('', opset);
  const half = calls.some(({ type }) => type === DataType.FLOAT16);
  const [query, key, value] = ['query', 'key', 'value'].map((operand) =>
    half ? body.cast(operand, undefined, DataType.FLOAT) : operand,
  ) as [string, string, string];

  // The query heads that share a key head follow each other, so they can be read as one head with more rows.
  const batch = body.sizes('query', 0, 1);
  const kvHeads = body.sizes('key', 1, 2);
  const keyLength = body.sizes('key', 2, 3);
  const grouped = (each: string, size: string) =>
    body.add('Reshape', [each, body.concat(batch, kvHeads, body.ints(-1), size)]);
  const ungrouped = (each: string, size: string) =>
    body.add('Reshape', [each, body.concat(body.sizes('query', 0, 3), size)]);

  const scaled = body.add('Mul', [query, parameter(body, 'scale')]);
  const keyColumns = body.transpose(key, [0, 1, 3, 2]);
  const products = body.add('MatMul', [grouped(scaled, body.sizes('query', 3, 4)), keyColumns]);
  const scores = capped(body, products, calls);
  const bias = withBand(body, calls);
  const biased = body.add('Add', [ungrouped(scores, keyLength), bias]);
  const probabilities = body.add('Softmax', [biased], [attributes.int('axis', 3)]);
  const mixed = ungrouped(
    body.add('MatMul', [grouped(probabilities, keyLength), value]),
    body.sizes('value', 3, 4),
  );

  const single = { value: mixed, type: DataType.FLOAT };
  if (half) body.add('CastLike', [zeroWhereMasked(body, bias, single), 'query'], [], 'output');
  else zeroWhereMasked(body, bias, single, 'output');
  return create(FunctionProtoSchema, {
    domain: fusedDomain,
    name: fusedOperator,
    input: ['query', 'key', 'value', 'bias', 'precision'],
    output: ['output'],
    attribute: ['scale', 'layer'],
    attributeProto: [
      attributes.float('softcap', 0),
      attributes.int('causal', 0),
      attributes.int('window_left', -1),
      attributes.int('window_right', -1),
    ],
    node: body.nodes,
    opsetImport: [{ domain: '', version: BigInt(opset) }],
  });
}

/** softcap * tanh(scores / softcap), in calls that have a soft cap. */
function capped(body: NodeList, scores: string, calls: BodyNeeds): string {
  if (calls.every(({ softcap }) => softcap === 0)) return scores;
  const softcap = parameter(body, 'softcap');
  const bounded = body.add('Mul', [body.add('Tanh', [body.add('Div', [scores, softcap])]), softcap]);
  if (calls.every((call) => call.softcap !== 0)) return bounded;
  return body.add('Where', [body.add('Equal', [softcap, body.float(0)]), scores, bounded]);
}

/** The bias with -Infinity outside of the band that a call's attributes describe, in calls that have one. */
function withBand(body: NodeList, calls: BodyNeeds): string {
  if (body.opset < 12 || calls.every(({ bias }) => bias.every(({ band }) => !band))) return 'bias';
  const integer = (name: string) => body.add('Constant', [], [attributes.intParameter('value_int', name)]);
  const keys = keyPositions(body, 'key');
  const offset = body.add('Sub', [body.sizes('key', 2, 3), body.sizes('query', 2, 3)]);
  const queries = queryPositions(body, 'query', offset);
  const zero = body.int(0);
  const given = (limit: string) => body.add('Not', [body.add('Less', [limit, zero])]);
  const [left, right] = [integer('window_left'), integer('window_right')];
  const causal = body.add('Not', [body.add('Equal', [integer('causal'), zero])]);
  const hidden = [
    body.add('And', [causal, body.add('Greater', [keys, queries])]),
    body.add('And', [given(right), body.add('Greater', [keys, body.add('Add', [queries, right])])]),
    body.add('And', [given(left), body.add('Less', [keys, body.add('Sub', [queries, left])])]),
  ].reduce((a, b) => body.add('Or', [a, b]));
  const band = body.add('Where', [hidden, body.float(-Infinity), body.float(0)]);
  return body.add('Add', ['bias', band]);
}

function parameter(body: NodeList, name: string): string {
  if (body.opset >= 12) return body.add('Constant', [], [attributes.floatParameter('value_float', name)]);
  // A Constant that takes a parameter came with opset 12. Selu of 1 is its gamma.
  return body.add('Selu', [body.float(1)], [attributes.floatParameter('gamma', name)]);
}
