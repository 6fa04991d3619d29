import type { AttentionSpec } from './spec.js';
import type { AttentionTensors, ScoreTensor } from './tensors.js';

/** Bias and mask as one additive bias, for kernels that take no other: masked keys are minus infinity. */
export function additiveBias(
  { bias, mask }: AttentionTensors,
  spec: AttentionSpec,
): ScoreTensor<Float32Array> | undefined {
  if (!mask) return bias;
  if (!bias) return { data: Float32Array.from(mask.data, (keep) => (keep ? 0 : -Infinity)), dims: mask.dims };
  const dims = [spec.batch, spec.heads, spec.queryLength, spec.keyLength] as const;
  const data = new Float32Array(dims.reduce((product, size) => product * size, 1));
  const biasStrides = broadcastStrides(bias.dims);
  const maskStrides = broadcastStrides(mask.dims);
  let at = 0;
  for (let b = 0; b < dims[0]; b++) {
    for (let h = 0; h < dims[1]; h++) {
      for (let q = 0; q < dims[2]; q++) {
        for (let k = 0; k < dims[3]; k++) {
          const index = (s: readonly number[]) => b * s[0]! + h * s[1]! + q * s[2]! + k * s[3]!;
          data[at++] = mask.data[index(maskStrides)] ? bias.data[index(biasStrides)]! : -Infinity;
        }
      }
    }
  }
  return { data, dims };
}

/** Steps in elements along [batch, heads, queryLength, keyLength]; 0 along broadcast axes. */
export function broadcastStrides(dims: readonly number[]): [number, number, number, number] {
  const strides: [number, number, number, number] = [0, 0, 0, 0];
  let stride = 1;
  for (let axis = dims.length - 1; axis >= 0; axis--) {
    const size = dims[axis]!;
    if (size !== 1) strides[4 - dims.length + axis] = stride;
    stride *= size;
  }
  return strides;
}
