import {
  type BlockScheme,
  dequantizeBlocks,
  hadamardRows,
  quantizeBlocks,
  recipes,
  tensorView,
} from '@mxattn/core';

const { mxfp4 } = recipes;

/** Some tokens of each head. */
export function tokensBetween(
  data: Float32Array,
  heads: number,
  total: number,
  begin: number,
  end: number,
  size: number,
) {
  const count = end - begin;
  const part = new Float32Array(heads * count * size);
  for (let h = 0; h < heads; h++) {
    part.set(data.subarray((h * total + begin) * size, (h * total + end) * size), h * count * size);
  }
  return part;
}

/** Values as the cache has them: whole panels quantised, the newest tokens as they are. */
export function cachedValues(
  values: Float32Array,
  heads: number,
  length: number,
  size: number,
): Float32Array {
  const view = tensorView({ batch: 1, heads, sequence: length, channels: size }, 'BHSD', 'sequence');
  const quantised = quantizeBlocks(values, view, mxfp4.value as BlockScheme);
  const result = dequantizeBlocks(quantised, view, values.slice());
  for (let h = 0; h < heads; h++) {
    const newest = (h * length + (length - (length % 32))) * size;
    result.set(values.subarray(newest, (h + 1) * length * size), newest);
  }
  return result;
}

/** Keys as the cache has them: rotated, quantised, and rotated back. */
export function cachedKeys(keys: Float32Array, heads: number, length: number, size: number): Float32Array {
  const view = tensorView({ batch: 1, heads, sequence: length, channels: size }, 'BHSD', 'channels');
  hadamardRows(keys, size);
  const rotated = dequantizeBlocks(quantizeBlocks(keys, view, mxfp4.queryKey!), view, keys.slice());
  hadamardRows(rotated, size);
  return rotated;
}
