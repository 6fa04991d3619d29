/** Whether a head of this size is rotated: only powers of two have this transform. */
export function hasHadamard(size: i32): bool {
  return (size & (size - 1)) == 0;
}

/**
 * Walsh-Hadamard transform of a row in place, with the orthonormal factor. Steps and roundings are those of
 * `hadamardRows` in f32. Zeros follow the row up to whole vectors.
 */
export function hadamard(row: usize, size: i32): void {
  const bytes = <usize>size * 4;
  const odd = i32x4(0, 0x80000000, 0, 0x80000000);
  const upper = i32x4(0, 0, 0x80000000, 0x80000000);
  for (let i: usize = 0; i < bytes; i += 16) {
    let x = v128.load(row + i);
    if (size > 1) {
      const swapped = i8x16.shuffle(x, x, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11);
      x = f32x4.add(swapped, v128.xor(x, odd));
    }
    if (size > 2) {
      const swapped = i8x16.shuffle(x, x, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
      x = f32x4.add(swapped, v128.xor(x, upper));
    }
    v128.store(row + i, x);
  }
  for (let half: usize = 16; half < bytes; half *= 2) {
    for (let group = row; group < row + bytes; group += 2 * half) {
      for (let i = group; i < group + half; i += 16) {
        const a = v128.load(i), b = v128.load(i + half);
        v128.store(i, f32x4.add(a, b));
        v128.store(i + half, f32x4.sub(a, b));
      }
    }
  }
  const norm = f32x4.splat(<f32>(1 / Math.sqrt(size)));
  for (let i: usize = 0; i < bytes; i += 16) v128.store(row + i, f32x4.mul(v128.load(row + i), norm));
}
