import { create } from '@bufbuild/protobuf';
import { BinaryReader } from '@bufbuild/protobuf/wire';
import { fromF16 } from '@mxattn/core';
import { DataType } from './element-types.js';
import { type TensorProto, TensorProto_DataLocation, TensorProtoSchema } from './onnx_pb.js';

/** A tensor small enough to reason about. 64-bit integers beyond 2^53 are rounded. */
export interface SmallTensor {
  readonly type: DataType;
  readonly dims: readonly number[];
  readonly values: readonly number[];
}

/** Tensors with more elements than this are data, not structure, and are never decoded. */
export const smallTensorLimit = 256;

/** Decodes a small tensor; undefined for weights, external data, strings and rare element types. */
export function smallTensor(tensor: TensorProto): SmallTensor | undefined {
  const type: DataType = tensor.dataType;
  const dims = tensor.dims.map(Number);
  const count = dims.reduce((product, dim) => product * dim, 1);
  if (!(count >= 0 && count <= smallTensorLimit)) return undefined;
  if (tensor.dataLocation === TensorProto_DataLocation.EXTERNAL) return undefined;
  const values =
    tensor.rawData.byteLength > 0 ? rawValues(type, tensor.rawData, count) : typedValues(type, tensor);
  return values?.length === count ? { type, dims, values } : undefined;
}

function rawValues(type: DataType, data: Uint8Array, count: number): number[] | undefined {
  const element = rawElements[type];
  if (!element || data.byteLength !== count * element.size) return undefined;
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  return Array.from({ length: count }, (_, index) => element.read(view, index * element.size));
}

const rawElements: Partial<Record<DataType, { size: number; read(view: DataView, at: number): number }>> = {
  [DataType.FLOAT]: { size: 4, read: (view, at) => view.getFloat32(at, true) },
  [DataType.DOUBLE]: { size: 8, read: (view, at) => view.getFloat64(at, true) },
  [DataType.FLOAT16]: { size: 2, read: (view, at) => fromF16(view.getUint16(at, true)) },
  [DataType.INT8]: { size: 1, read: (view, at) => view.getInt8(at) },
  [DataType.UINT8]: { size: 1, read: (view, at) => view.getUint8(at) },
  [DataType.BOOL]: { size: 1, read: (view, at) => view.getUint8(at) },
  [DataType.INT16]: { size: 2, read: (view, at) => view.getInt16(at, true) },
  [DataType.UINT16]: { size: 2, read: (view, at) => view.getUint16(at, true) },
  [DataType.INT32]: { size: 4, read: (view, at) => view.getInt32(at, true) },
  [DataType.UINT32]: { size: 4, read: (view, at) => view.getUint32(at, true) },
  [DataType.INT64]: { size: 8, read: (view, at) => Number(view.getBigInt64(at, true)) },
  [DataType.UINT64]: { size: 8, read: (view, at) => Number(view.getBigUint64(at, true)) },
};

/** Values in the field of their type. The fields are packed; most are varints. */
function typedValues(type: DataType, tensor: TensorProto): number[] | undefined {
  switch (type) {
    case DataType.FLOAT:
      return packed(tensor.floatData, (reader) => reader.float());
    case DataType.DOUBLE:
      return packed(tensor.doubleData, (reader) => reader.double());
    case DataType.INT64:
      return packed(tensor.int64Data, (reader) => Number(reader.int64()));
    case DataType.UINT32:
    case DataType.UINT64:
      return packed(tensor.uint64Data, (reader) => Number(reader.uint64()));
    case DataType.FLOAT16:
      return packed(tensor.int32Data, (reader) => fromF16(reader.int32()));
    case DataType.INT8:
    case DataType.UINT8:
    case DataType.INT16:
    case DataType.UINT16:
    case DataType.INT32:
    case DataType.BOOL:
      return packed(tensor.int32Data, (reader) => reader.int32());
    default:
      return undefined;
  }
}

function packed(chunks: readonly Uint8Array[], read: (reader: BinaryReader) => number): number[] | undefined {
  const values: number[] = [];
  try {
    for (const chunk of chunks) {
      const reader = new BinaryReader(chunk);
      while (reader.pos < reader.len && values.length <= smallTensorLimit) values.push(read(reader));
    }
  } catch {
    // Not what the type says it is: nothing to reason about.
    return undefined;
  }
  return values;
}

/** A tensor to put into a model: an initializer if it has a name, the value of a Constant if not. */
export function tensorProto(
  type: DataType.FLOAT | DataType.INT64 | DataType.INT32,
  dims: readonly number[],
  values: readonly number[],
  name?: string,
): TensorProto {
  return create(TensorProtoSchema, {
    dataType: type,
    dims: dims.map(BigInt),
    rawData: rawBytes(type, values),
    ...(name === undefined ? {} : { name }),
  });
}

function rawBytes(
  type: DataType.FLOAT | DataType.INT64 | DataType.INT32,
  values: readonly number[],
): Uint8Array {
  const size = type === DataType.INT64 ? 8 : 4;
  const view = new DataView(new ArrayBuffer(values.length * size));
  values.forEach((value, index) => {
    if (type === DataType.FLOAT) view.setFloat32(index * size, value, true);
    else if (type === DataType.INT32) view.setInt32(index * size, value, true);
    else view.setBigInt64(index * size, BigInt(value), true);
  });
  return new Uint8Array(view.buffer);
}
