import type { Tensor } from 'onnxruntime-common';

/** ONNX's numbers of the element types that tensors in JavaScript can have; strings are not among them. */
const ELEMENT_TYPES = {
  float32: 1,
  uint8: 2,
  int8: 3,
  uint16: 4,
  int16: 5,
  int32: 6,
  int64: 7,
  bool: 9,
  float16: 10,
  float64: 11,
  uint32: 12,
  uint64: 13,
} as const satisfies Partial<Record<Tensor.Type, number>>;

export type ElementType = keyof typeof ELEMENT_TYPES;

const ARRAYS = {
  float32: Float32Array,
  uint8: Uint8Array,
  int8: Int8Array,
  uint16: Uint16Array,
  int16: Int16Array,
  int32: Int32Array,
  int64: BigInt64Array,
  bool: Uint8Array,
  float16: Uint16Array,
  float64: Float64Array,
  uint32: Uint32Array,
  uint64: BigUint64Array,
} as const satisfies Record<ElementType, unknown>;

const NAMES = new Map<number, ElementType>(
  Object.entries(ELEMENT_TYPES).map(([name, id]) => [id, name as ElementType]),
);

/** ONNX's number of a tensor type, undefined for one that cannot be passed to the addon. */
export function elementTypeNumber(type: Tensor.Type): number | undefined {
  return (ELEMENT_TYPES as Partial<Record<Tensor.Type, number>>)[type];
}

/** The tensor type of ONNX's number of it, of those that the addon hands out. */
export function elementType(number: number): ElementType {
  return NAMES.get(number)!;
}

/** The bytes under a typed array, without a copy. */
export function bytesOf({ buffer, byteOffset, byteLength }: ArrayBufferView): Uint8Array {
  return new Uint8Array(buffer, byteOffset, byteLength);
}

/** Type and data of a tensor of ONNX's element type over memory that the addon handed out, without a copy. */
export function typedData(number: number, data: ArrayBuffer) {
  const type = elementType(number);
  return { type, data: new ARRAYS[type](data) };
}
