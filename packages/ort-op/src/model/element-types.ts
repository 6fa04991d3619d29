import type { Tensor } from 'onnxruntime-common';
import { TensorProto_DataType as DataType } from './onnx_pb.js';

export { DataType };

/** The name onnxruntime-common uses for an element type; undefined for types it has no tensors of. */
export function tensorType(type: DataType): Tensor.Type | undefined {
  return tensorTypes[type];
}

const tensorTypes: Partial<Record<DataType, Tensor.Type>> = {
  [DataType.FLOAT]: 'float32',
  [DataType.FLOAT16]: 'float16',
  [DataType.DOUBLE]: 'float64',
  [DataType.INT4]: 'int4',
  [DataType.UINT4]: 'uint4',
  [DataType.INT8]: 'int8',
  [DataType.UINT8]: 'uint8',
  [DataType.INT16]: 'int16',
  [DataType.UINT16]: 'uint16',
  [DataType.INT32]: 'int32',
  [DataType.UINT32]: 'uint32',
  [DataType.INT64]: 'int64',
  [DataType.UINT64]: 'uint64',
  [DataType.BOOL]: 'bool',
  [DataType.STRING]: 'string',
};

/** Whether attention is computed in this type: float32, or float16 with float32 inside. */
export function isComputed(type: DataType | undefined): boolean {
  return type === DataType.FLOAT || type === DataType.FLOAT16;
}

/** Whether values of this type are integers (or booleans). */
export function isInteger(type: DataType): boolean {
  return integers.has(type);
}

const integers = new Set([
  DataType.INT4,
  DataType.UINT4,
  DataType.INT8,
  DataType.UINT8,
  DataType.INT16,
  DataType.UINT16,
  DataType.INT32,
  DataType.UINT32,
  DataType.INT64,
  DataType.UINT64,
  DataType.BOOL,
]);
