import { MxattnError } from '../errors.js';
import type { Reals } from './block.js';

/** Whether a head of this size can be rotated: only powers of two have this transform. */
export function hasHadamard(size: number): boolean {
  return size > 0 && (size & (size - 1)) === 0;
}

/**
 * Rotates contiguous rows of `size` values in place by the orthonormal Walsh-Hadamard matrix (Sylvester's
 * order). It spreads an outlier channel over the whole row and leaves dot products of two rotated rows as
 * they were. In a Float32Array every step is rounded to float32.
 *
 * @throws MxattnError if size is no power of two.
 */
export function hadamardRows(values: Reals, size: number): void {
  if (!hasHadamard(size)) throw new MxattnError(`Hadamard rotation: ${size} is no power of two`);
  const exact = 1 / Math.sqrt(size);
  const norm = values instanceof Float32Array ? Math.fround(exact) : exact;
  for (let row = 0; row < values.length; row += size) {
    for (let half = 1; half < size; half *= 2) {
      for (let group = row; group < row + size; group += 2 * half) {
        for (let i = group; i < group + half; i++) {
          const a = values[i]!;
          const b = values[i + half]!;
          values[i] = a + b;
          values[i + half] = a - b;
        }
      }
    }
    for (let i = row; i < row + size; i++) values[i] = values[i]! * norm;
  }
}
