import { create } from '@bufbuild/protobuf';
import { type AttentionSpec, attentionSpec, fromF16, referenceAttention, toF16 } from '@mxattn/core';
import type * as Ort from 'onnxruntime-common';
import { attributes, NodeList } from '../model/build.js';
import { DataType, type NodeProto } from '../model/index.js';
import {
  GraphProtoSchema,
  ModelProtoSchema,
  OperatorSetIdProtoSchema,
  ValueInfoProtoSchema,
} from '../model/onnx_pb.js';
import { writeModel } from '../model/read.js';
import { packedScale } from '../rewrite/index.js';
import type { KvCache } from '../webgpu/kv-cache.js';
import { type ElementType, shapeClass } from '../webgpu/shape-class.js';
import { carrierPrograms } from './carrier.js';
import { CACHE_FORMAT, type InplaceAttention } from './inplace-attention.js';

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

/** Tokens of the runs that a packed cache is tried with: a few, and one more. */
const CACHED = [5, 1] as const;
/** Of numbers between -1 and 1 that are packed. */
const LARGEST_PACKED_ERROR = 0.3;

/**
 * Runs a tiny model twice whose attention continues a packed cache.
 *
 * @param cache An empty one with a bias.
 * @returns Why ONNX Runtime's programs cannot carry new tokens to a packed cache; undefined if they can.
 */
export async function cacheObstacle(
  ort: typeof Ort,
  create: CreateSession,
  attention: InplaceAttention,
  cache: KvCache,
): Promise<string | undefined> {
  const { heads, kvHeads, headSize, scale, elementType } = cache.shape;
  const keyLength = CACHED[0] + CACHED[1];
  const spec = attentionSpec({
    heads,
    kvHeads,
    headSize,
    scale,
    queryLength: keyLength,
    keyLength,
    layout: 'BSHD',
    causal: true,
  });
  await attention.prepare(shapeClass(spec, { elementType, bias: true, sinks: false }), 'f32');
  const [query, key, value] = [heads, kvHeads, kvHeads].map((each, i) =>
    ramp(each * keyLength * headSize, i),
  );
  const expected = referenceAttention({ query: query!, key: key!, value: value! }, spec);
  const session = await create(cacheModel(spec, elementType));
  try {
    for (const [run, count] of CACHED.entries()) {
      const first = run === 0 ? 0 : CACHED[0];
      const total = first + count;
      const tokens = (data: Float32Array, each: number) => {
        const size = each * headSize;
        return tensorOf(ort, elementType, data.slice(first * size, total * size), [1, count, size]);
      };
      const integer = (each: number) => new ort.Tensor('int32', Int32Array.of(each), [1]);
      const before = attention.counts;
      const placed = { attention: { causal: true, windowLeft: -1 }, cache };
      attention.begin({ precisions: [run === 0 ? 'f32' : CACHE_FORMAT], packed: [placed] });
      const { out } = await session
        .run({
          query: tokens(query!, heads),
          key: tokens(key!, kvHeads),
          value: tokens(value!, kvHeads),
          bias: tensorOf(ort, elementType, new Float32Array(count * total), [1, 1, count, total]),
          lengths: integer(total - 1),
          longest: integer(total),
        })
        .finally(() => attention.end());
      const { inPlace, left } = attention.counts;
      const reason = Object.keys(left).find((each) => left[each] !== before.left[each]);
      if (reason) return reason;
      if (inPlace === before.inPlace || cache.length !== total) {
        return 'ONNX Runtime did not dispatch the programs that carry new tokens';
      }
      const output = await numbersOf(out!);
      const start = first * heads * headSize;
      const error = output.reduce(
        (worst, each, i) => Math.max(worst, Math.abs(each - expected[start + i]!)),
        0,
      );
      if (!(error < LARGEST_PACKED_ERROR)) {
        return `a test of the packed cache gave a wrong answer (${error.toPrecision(2)} off)`;
      }
    }
    return undefined;
  } finally {
    await session.release();
  }
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
  const session = await create(testModel(size, heads, elementType));
  try {
    const feed = (data: Float32Array, length: number) => tensorOf(ort, elementType, data, [1, length, size]);
    const { out } = await session.run({
      query: feed(query, queryLength),
      key: feed(key, keyLength),
      value: feed(value, keyLength),
    });
    const output = await numbersOf(out!);
    const expected = referenceAttention({ query, key, value }, spec);
    return expected.reduce((worst, each, i) => Math.max(worst, Math.abs(each - output[i]!)), 0);
  } finally {
    await session.release();
  }
}

function tensorOf(
  { Tensor }: typeof Ort,
  elementType: ElementType,
  numbers: Float32Array,
  dims: readonly number[],
): Ort.Tensor {
  if (elementType === 'float32') return new Tensor(elementType, numbers, dims);
  return new Tensor(elementType, Uint16Array.from(numbers, toF16), dims);
}

async function numbersOf(tensor: Ort.Tensor): Promise<Float32Array> {
  const data = (await tensor.getData()) as Float32Array | Uint16Array;
  if (tensor.type === 'float32') return data as Float32Array;
  // A Float16Array where there is one.
  return Float32Array.from(new Uint16Array(data.buffer, data.byteOffset, data.length), fromF16);
}

/** Numbers between -1 and 1 that repeat late. */
function ramp(count: number, seed: number): Float32Array {
  return Float32Array.from({ length: count }, (_, i) => ((i * 37 + seed * 101) % 199) / 99.5 - 1);
}

function testModel(size: number, heads: number, elementType: ElementType): Uint8Array {
  const inputs = ['query', 'key', 'value'];
  return modelOf(
    {
      opType: 'MultiHeadAttention',
      input: [],
      output: [],
      attribute: [attributes.int('num_heads', heads)],
    },
    Object.fromEntries(inputs.map((name) => [name, [1, `${name} length`, size]])),
    {},
    elementType,
  );
}

/** A GroupQueryAttention as {@link withPackedCache} writes them, with a bias for all keys. */
function cacheModel({ heads, kvHeads, headSize }: AttentionSpec, elementType: ElementType): Uint8Array {
  return modelOf(
    {
      opType: 'GroupQueryAttention',
      input: ['', '', 'lengths', 'longest', '', '', '', 'bias'],
      output: ['present_key', 'present_value'],
      attribute: [
        attributes.int('num_heads', heads),
        attributes.int('kv_num_heads', kvHeads),
        attributes.float('scale', packedScale(0)),
      ],
    },
    {
      query: [1, 'length', heads * headSize],
      key: [1, 'length', kvHeads * headSize],
      value: [1, 'length', kvHeads * headSize],
      bias: [1, 1, 'length', 'total'],
    },
    { lengths: [1], longest: [1] },
    elementType,
  );
}

/**
 * A model of one node of ONNX Runtime's domain that takes `query`, `key` and `value`, and what it takes and gives beyond.
 * They come from other programs, and its output goes to one, as in a model.
 */
function modelOf(
  { opType, input, output, attribute }: Pick<NodeProto, 'opType' | 'input' | 'output' | 'attribute'>,
  floats: Readonly<Record<string, readonly (number | string)[]>>,
  integers: typeof floats,
  elementType: ElementType,
): Uint8Array {
  const type = elementType === 'float16' ? DataType.FLOAT16 : DataType.FLOAT;
  const list = new NodeList('self_test.', 17);
  const [query, key, value] = ['query', 'key', 'value'].map((name) =>
    list.add('Neg', [list.add('Neg', [name])]),
  );
  list.push({
    opType,
    domain: 'com.microsoft',
    name: 'attention',
    input: [query!, key!, value!, ...input],
    output: ['attended', ...output],
    attribute,
  });
  list.add('Neg', [list.add('Neg', ['attended'])], [], 'out');
  const edge = (name: string, elemType: DataType, dims: readonly (number | string)[]) =>
    create(ValueInfoProtoSchema, {
      name,
      type: {
        value: {
          case: 'tensorType',
          value: {
            elemType,
            shape: {
              dim: dims.map((size) => ({
                value:
                  typeof size === 'number'
                    ? { case: 'dimValue' as const, value: BigInt(size) }
                    : { case: 'dimParam' as const, value: size },
              })),
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
        input: [
          ...Object.entries(floats).map(([name, dims]) => edge(name, type, dims)),
          ...Object.entries(integers).map(([name, dims]) => edge(name, DataType.INT32, dims)),
        ],
        output: [edge('out', type, floats.query!)],
      }),
    }),
  );
}
