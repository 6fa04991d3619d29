import type { Reals } from '../formats/block.js';

/** scores[j] = row . keys[j] for begin <= j < end; keys are contiguous rows of `size`. */
export function dotRows(
  row: Float64Array,
  rowStart: number,
  keys: Float64Array,
  size: number,
  begin: number,
  end: number,
  scores: Float64Array,
): void {
  let j = begin;
  // Four keys at a time share the loads of the row.
  for (; j + 4 <= end; j += 4) {
    const k0 = j * size;
    const k1 = k0 + size;
    const k2 = k1 + size;
    const k3 = k2 + size;
    let s0 = 0;
    let s1 = 0;
    let s2 = 0;
    let s3 = 0;
    for (let c = 0; c < size; c++) {
      const x = row[rowStart + c]!;
      s0 += x * keys[k0 + c]!;
      s1 += x * keys[k1 + c]!;
      s2 += x * keys[k2 + c]!;
      s3 += x * keys[k3 + c]!;
    }
    scores[j] = s0;
    scores[j + 1] = s1;
    scores[j + 2] = s2;
    scores[j + 3] = s3;
  }
  for (; j < end; j++) {
    let s = 0;
    for (let c = 0; c < size; c++) s += row[rowStart + c]! * keys[j * size + c]!;
    scores[j] = s;
  }
}

/** As {@link dotRows}, every product and sum rounded to float32. */
export function dotRowsF32(
  row: Float64Array,
  rowStart: number,
  keys: Float64Array,
  size: number,
  begin: number,
  end: number,
  scores: Float64Array,
): void {
  for (let j = begin; j < end; j++) {
    let s = 0;
    for (let c = 0; c < size; c++) s = Math.fround(s + row[rowStart + c]! * keys[j * size + c]!);
    scores[j] = s;
  }
}

/**
 * out += sum over the first `count` keys of weights[j] * values[first + j]; values are contiguous rows as long
 * as `out`. A Float32Array accumulates in float32.
 */
export function addWeighted(
  weights: Float64Array,
  count: number,
  values: Float64Array,
  first: number,
  out: Reals,
): void {
  const size = out.length;
  let j = 0;
  // Four keys at a time share the load and store of the sum.
  for (; j + 4 <= count; j += 4) {
    const w0 = weights[j]!;
    const w1 = weights[j + 1]!;
    const w2 = weights[j + 2]!;
    const w3 = weights[j + 3]!;
    if (w0 === 0 && w1 === 0 && w2 === 0 && w3 === 0) continue;
    const v0 = (first + j) * size;
    const v1 = v0 + size;
    const v2 = v1 + size;
    const v3 = v2 + size;
    for (let c = 0; c < size; c++) {
      out[c] =
        out[c]! +
        (w0 * values[v0 + c]! + w1 * values[v1 + c]! + (w2 * values[v2 + c]! + w3 * values[v3 + c]!));
    }
  }
  for (; j < count; j++) {
    const w = weights[j]!;
    if (w === 0) continue;
    for (let c = 0; c < size; c++) out[c] = out[c]! + w * values[(first + j) * size + c]!;
  }
}
