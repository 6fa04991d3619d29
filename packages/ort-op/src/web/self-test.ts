import { create } from '@bufbuild/protobuf';
import { type AttentionSpec, attentionSpec, fromF16, referenceAttention, toF16 } from '@mxattn/core';
import type * as Ort from 'onnxruntime-common';
import { attributes, NodeList } from '../model/build.js';
import { DataType } from '../model/index.js';
import {
  GraphProtoSchema,
  ModelProtoSchema,
  OperatorSetIdProtoSchema,
  ValueInfoProtoSchema,
} from '../model/onnx_pb.js';
import { writeModel } from '../model/read.js';
import { type ElementType, shapeClass } from '../webgpu/shape-class.js';
import { carrierPrograms } from './carrier.js';
import type { InplaceAttention } from './inplace-attention.js';

/** Lengths that are no multiple of a tile: many queries, and few of them, which ONNX Runtime computes in another way. */
const SHAPES = [
  { heads: 2, queryLength: 37, keyLength: 45, headSize: 64 },
  { heads: 2, queryLength: 3, keyLength: 45, headSize: 64 },
] as const;

type CreateSession = (model: Uint8Array) => Promise<Ort.InferenceSession>;

/**
 * Runs a tiny model on the device whose attention is computed in place with twice the scale that the model says: the answers
 * show that our kernels ran, and that they read and wrote the right buffers in the right order.
 *
 * @param elementType Of the model's tensors.
 * @returns Why attention cannot be computed in place on this runtime and device; undefined if it can.
 */
export async function inplaceObstacle(
  ort: typeof Ort,
  create: CreateSession,
  attention: InplaceAttention,
  elementType: ElementType,
): Promise<string | undefined> {
  const change = (spec: AttentionSpec) => ({ ...spec, scale: 2 * spec.scale });
  for (const shape of SHAPES) {
    await attention.prepare(
      shapeClass(testSpec(shape, 1), { elementType, bias: false, sinks: false }),
      'f32',
    );
    const before = attention.counts;
    attention.begin({ precisions: ['f32'], change });
    const error = await testError(ort, create, testSpec(shape, 2), elementType).finally(() =>
      attention.end(),
    );
    const { inPlace, left } = attention.counts;
    const reason = Object.keys(left).find((each) => left[each] !== before.left[each]);
    if (reason) return reason;
    if (inPlace === before.inPlace) {
      return `ONNX Runtime dispatched none of its programs ${Object.values(carrierPrograms).join(', ')}`;
    }
    if (!(error < LARGEST_ERROR[elementType]))
      return `a test gave a wrong answer (${error.toPrecision(2)} off)`;
  }
  return undefined;
}

/** Why ONNX Runtime's own fused attention cannot be used on this device: it is wrong where subgroups are small. */
export async function carrierObstacle(ort: typeof Ort, create: CreateSession): Promise<string | undefined> {
  const errors: number[] = [];
  for (const shape of SHAPES) errors.push(await testError(ort, create, testSpec(shape, 1), 'float32'));
  const error = Math.max(...errors);
  if (error < LARGEST_ERROR.float32) return undefined;
  return `ONNX Runtime's own fused attention gives wrong answers on this device (${error.toPrecision(2)} off in a test)`;
}

/** Of numbers between -1 and 1, computed in f32; float16 operands and outputs are rounded. */
const LARGEST_ERROR = { float32: 1e-4, float16: 2e-3 } as const;

function testSpec(shape: (typeof SHAPES)[number], factor: number): AttentionSpec {
  return attentionSpec({ ...shape, layout: 'BSHD', scale: factor / Math.sqrt(shape.headSize) });
}

/** The largest difference between the test model's answer and attention as the spec says it. */
async function testError(
  ort: typeof Ort,
  create: CreateSession,
  spec: AttentionSpec,
  elementType: ElementType,
): Promise<number> {
  const { heads, queryLength, keyLength, headSize } = spec;
  const size = heads * headSize;
  const query = ramp(queryLength * size, 1);
  const key = ramp(keyLength * size, 2);
  const value = ramp(keyLength * size, 3);
  const halves = elementType === 'float16';
  const session = await create(testModel(size, heads, elementType));
  try {
    const feed = (data: Float32Array, length: number) =>
      new ort.Tensor(elementType, halves ? Uint16Array.from(data, toF16) : data, [1, length, size]);
    const { out } = await session.run({
      query: feed(query, queryLength),
      key: feed(key, keyLength),
      value: feed(value, keyLength),
    });
    const { buffer, byteOffset } = (await out!.getData()) as Float32Array;
    const count = queryLength * size;
    const output = halves
      ? Float32Array.from(new Uint16Array(buffer, byteOffset, count), fromF16)
      : new Float32Array(buffer, byteOffset, count);
    const expected = referenceAttention({ query, key, value }, spec);
    return expected.reduce((worst, each, i) => Math.max(worst, Math.abs(each - output[i]!)), 0);
  } finally {
    await session.release();
  }
}

/** Numbers between -1 and 1 that repeat late. */
function ramp(count: number, seed: number): Float32Array {
  return Float32Array.from({ length: count }, (_, i) => ((i * 37 + seed * 101) % 199) / 99.5 - 1);
}

function testModel(size: number, heads: number, elementType: ElementType): Uint8Array {
  const list = new NodeList('self_test.', 17);
  // Inputs that come from other programs, and an output that goes to one, as in a model.
  const [query, key, value] = ['query', 'key', 'value'].map((name) =>
    list.add('Neg', [list.add('Neg', [name])]),
  );
  list.push({
    opType: 'MultiHeadAttention',
    domain: 'com.microsoft',
    name: 'attention',
    input: [query!, key!, value!],
    output: ['attended'],
    attribute: [attributes.int('num_heads', heads)],
  });
  list.add('Neg', [list.add('Neg', ['attended'])], [], 'out');
  const edge = (name: string) =>
    create(ValueInfoProtoSchema, {
      name,
      type: {
        value: {
          case: 'tensorType',
          value: {
            elemType: elementType === 'float16' ? DataType.FLOAT16 : DataType.FLOAT,
            shape: {
              dim: [
                { value: { case: 'dimValue', value: 1n } },
                { value: { case: 'dimParam', value: `${name} length` } },
                { value: { case: 'dimValue', value: BigInt(size) } },
              ],
            },
          },
        },
      },
    });
  return writeModel(
    create(ModelProtoSchema, {
      irVersion: 8n,
      opsetImport: [
        create(OperatorSetIdProtoSchema, { domain: '', version: 17n }),
        create(OperatorSetIdProtoSchema, { domain: 'com.microsoft', version: 1n }),
      ],
      graph: create(GraphProtoSchema, {
        name: 'self-test',
        node: list.nodes,
        input: ['query', 'key', 'value'].map(edge),
        output: [edge('out')],
      }),
    }),
  );
}
