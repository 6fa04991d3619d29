import { fromF16 } from '@mxattn/core';
import type { Tensor } from 'onnxruntime-common';

/** The elements of a tensor of floating-point numbers; undefined for one of another type. */
export function numbersOf({ type, data }: Tensor): Float32Array | undefined {
  if (type === 'float32') return data as Float32Array;
  return type === 'float16' ? Float32Array.from(data as Uint16Array, fromF16) : undefined;
}
