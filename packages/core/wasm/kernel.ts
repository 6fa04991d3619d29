// Attention for WebAssembly, tiled: no matrix of all scores exists at any time. Two builds of one source: products of
// i16 in plain SIMD, of 8-bit integers in relaxed SIMD. Queries come in blocks of BLOCK_ROWS, keys and values in tiles
// of TILE_KEYS, each as plain f32 rows in `rows`. Which query sees which keys, which bias and sink it has, is said row
// by row: layouts, grouped heads and windows are the caller's.

import { fusedSoftmax, UNIT } from './fused-softmax';
import { maskScores } from './mask';
import { onlineSoftmax } from './online-softmax';
import { Interleaved, product, RowMajor } from './product';
import { finishRow, resetRow } from './row-state';
import {
  BLOCK,
  GROUP_ROWS,
  PANEL_COLUMNS,
  SEPARATE,
  SUSPICIOUS,
  TILE_BLOCKS,
  TILE_KEYS,
  TILE_PANELS,
} from './sizes';
import {
  biased,
  biasIndex,
  blockSteps,
  float,
  headBlocks,
  headSteps,
  keyFlags,
  keyPanelBytes,
  keyScales,
  keys,
  out,
  outStride,
  queries,
  queryFlags,
  queryScales,
  queryStarts,
  rows,
  scores,
  softcap,
  tileSteps,
  valueFlags,
  valuePanelBytes,
  valuePanels,
  values,
  valueScales,
  valueSize,
  visible,
  weights,
  weightScales,
} from './state';

export { probe } from './product';
export { packKeys, packQueries, packValues } from './pack';
export { bias, biasIndex, biasStride, configure, rows, sinks, visible } from './state';

const SCORE_ROW_BYTES = TILE_KEYS * 4;
const SCALE_BYTES = PANEL_COLUMNS * 4;

/** Scores of a group of rows in a tile, from operands with codes of type T. */
function scoreTile<T>(group: i32, tile: i32, separate: bool): void {
  const query = queries + group * headSteps * GROUP_ROWS * 4;
  const queryScale = queryScales + group * headBlocks * GROUP_ROWS * 4;
  const start = ASC_FEATURE_RELAXED_SIMD ? queryStarts + group * (1 + headBlocks) * GROUP_ROWS * 4 : 0;
  const key = keys + tile * TILE_PANELS * keyPanelBytes;
  const scale = keyScales + tile * TILE_PANELS * headBlocks * SCALE_BYTES;
  const blocks = separate ? headBlocks : 1;
  for (let b = 0; b < blocks; b++) {
    product<T, Interleaved>(
      query + b * blockSteps * GROUP_ROWS * 4,
      separate ? min(blockSteps, headSteps - b * blockSteps) : headSteps,
      key + b * blockSteps * PANEL_COLUMNS * 4,
      TILE_PANELS,
      keyPanelBytes,
      ASC_FEATURE_RELAXED_SIMD ? start + (separate ? 1 + b : 0) * GROUP_ROWS * 4 : 0,
      scale + b * SCALE_BYTES,
      headBlocks * SCALE_BYTES,
      queryScale + b * GROUP_ROWS * 4,
      scores,
      SCORE_ROW_BYTES,
      b > 0,
    );
  }
}

/** Adds the weighted values of a tile to the output of a group of rows, from weights of type T. */
function addValues<T>(group: i32, tile: i32, separate: bool): void {
  const value = values + tile * valuePanels * valuePanelBytes;
  const scale = valueScales + tile * valuePanels * TILE_BLOCKS * SCALE_BYTES;
  const blocks = separate ? TILE_BLOCKS : 1;
  for (let b = 0; b < blocks; b++) {
    product<T, RowMajor>(
      weights + b * BLOCK * sizeof<T>(),
      separate ? blockSteps : tileSteps,
      value + b * blockSteps * PANEL_COLUMNS * 4,
      valuePanels,
      valuePanelBytes,
      0,
      scale + b * SCALE_BYTES,
      TILE_BLOCKS * SCALE_BYTES,
      weightScales + b * GROUP_ROWS * 4,
      out + group * GROUP_ROWS * outStride,
      outStride,
      true,
    );
  }
}

function maskGroup(group: i32, tile: i32, unit: f32): void {
  const firstKey = tile * TILE_KEYS;
  for (let r = 0; r < GROUP_ROWS; r++) {
    maskScores(scores + r * SCORE_ROW_BYTES, group * GROUP_ROWS + r, firstKey, unit);
  }
}

function attendFloat(group: i32, tile: i32, masked: bool): void {
  product<f32, Interleaved>(
    queries + group * headSteps * GROUP_ROWS * 4,
    headSteps,
    keys + tile * TILE_PANELS * keyPanelBytes,
    TILE_PANELS,
    keyPanelBytes,
    0,
    0,
    0,
    0,
    scores,
    SCORE_ROW_BYTES,
    false,
  );
  if (masked) maskGroup(group, tile, 1);
  for (let r = 0; r < GROUP_ROWS; r++) onlineSoftmax(group * GROUP_ROWS + r, scores + r * SCORE_ROW_BYTES);
  product<f32, RowMajor>(
    scores,
    tileSteps,
    values + tile * valuePanels * valuePanelBytes,
    valuePanels,
    valuePanelBytes,
    0,
    0,
    0,
    0,
    out + group * GROUP_ROWS * outStride,
    outStride,
    true,
  );
}

/** K and P: types of the codes of keys and weights. */
function attendFused<K, P>(group: i32, tile: i32, masked: bool): void {
  const flags = <i32>load<u8>(queryFlags + group) | <i32>load<u8>(keyFlags + tile);
  scoreTile<K>(group, tile, (flags & SEPARATE) != 0);
  if (masked) maskGroup(group, tile, UNIT);
  // A bias may be NaN.
  const parts = fusedSoftmax<P>(group, biased || (flags & SUSPICIOUS) != 0);
  if (parts) addValues<P>(group, tile, parts == TILE_BLOCKS || load<u8>(valueFlags + tile) != 0);
}

/**
 * Attention of the `count` queries that were packed last over the packed keys and values. The output replaces `rows`,
 * valueSize floats a row.
 */
export function attend(count: i32): void {
  const groups = (count + GROUP_ROWS - 1) / GROUP_ROWS;
  let firstTile = i32.MAX_VALUE, lastTile = -1;
  for (let row = 0; row < groups * GROUP_ROWS; row++) {
    resetRow(row);
    if (row >= count) {
      // Computed with the others of their group, from whatever is there, but not used.
      store<u64>(visible + row * 8, 0);
      store<i32>(biasIndex + row * 4, 0);
    }
    const begin = load<i32>(visible + row * 8), end = load<i32>(visible + row * 8, 4);
    if (begin >= end) continue;
    firstTile = min(firstTile, begin / TILE_KEYS);
    lastTile = max(lastTile, (end - 1) / TILE_KEYS);
  }
  for (let tile = firstTile; tile <= lastTile; tile++) {
    for (let group = 0; group < groups; group++) attendTile(group, tile);
  }
  for (let row = 0; row < count; row++) finishRow(row, rows + row * valueSize * 4);
}

function attendTile(group: i32, tile: i32): void {
  const begin = tile * TILE_KEYS, end = begin + TILE_KEYS;
  let seen = false, masked = softcap > 0 || biased;
  for (let row = group * GROUP_ROWS; row < (group + 1) * GROUP_ROWS; row++) {
    const first = load<i32>(visible + row * 8), last = load<i32>(visible + row * 8, 4);
    if (first < end && last > begin && first < last) seen = true;
    if (first > begin || last < end) masked = true;
  }
  if (!seen) return;
  if (float) attendFloat(group, tile, masked);
  else if (ASC_FEATURE_RELAXED_SIMD) attendFused<i8, u8>(group, tile, masked);
  else attendFused<i16, i16>(group, tile, masked);
}
