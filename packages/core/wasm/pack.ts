// Operands from plain rows to the order in which the products read them.

import { hadamard, hasHadamard } from './hadamard';
import {
  elementIntegers,
  INFINITE,
  integerFactors,
  integerScales,
  inversePowers,
  magnitudeBits,
  quantiseRow,
  scaleExponents,
} from './quantise';
import {
  BLOCK,
  GROUP_ROWS,
  PANEL_COLUMNS,
  SEPARATE,
  TILE_BLOCKS,
  TILE_KEYS,
} from './sizes';
import {
  codes,
  float,
  headBlocks,
  headSize,
  headSteps,
  keyFlags,
  keyPanelBytes,
  keyScales,
  keys,
  OFFSET,
  operand,
  queries,
  queryFlags,
  queryScales,
  queryStarts,
  row,
  rowScales,
  rows,
  spareKey,
  spareQuery,
  spareValue,
  tops,
  valueFlags,
  valuePanelBytes,
  valuePanels,
  values,
  valueScales,
  valueSize,
} from './state';
import { sumOfLanes } from './vector';

/** Copies row `index` of `rows` times a factor into `row`, followed by zeros. */
function loadRow(index: i32, factor: f32): void {
  const bytes = headSize * 4;
  const from = rows + index * bytes;
  const f = f32x4.splat(factor);
  for (let i = 0; i < bytes; i += 16) v128.store(row + i, f32x4.mul(v128.load(from + i), f));
  for (let i = bytes; i < headBlocks * BLOCK * 4; i += 4) store<u32>(row + i, 0);
}

function quantiseRotated(spare: i32): i32 {
  if (hasHadamard(headSize)) hadamard(row, headSize);
  if (ASC_FEATURE_RELAXED_SIMD) return quantiseRow<i8>(operand, row, headBlocks, spare, tops, codes, rowScales);
  return quantiseRow<i16>(operand, row, headBlocks, spare, tops, codes, rowScales);
}

@inline function scatter(from: usize, count: i32, to: usize, stride: i32): void {
  for (let i = 0; i < count; i++) store<u32>(to + i * stride, load<u32>(from + i * 4));
}

/** Packs the `count` keys in `rows` as a tile; keys missing to a whole tile become zeros. */
export function packKeys(tile: i32, count: i32): void {
  const bytes = headSize * 4;
  memory.fill(rows + count * bytes, 0, (TILE_KEYS - count) * bytes);
  let flags = 0;
  for (let j = 0; j < TILE_KEYS; j++) {
    loadRow(j, 1);
    const panel = (tile * TILE_KEYS + j) / PANEL_COLUMNS;
    const column = (j % PANEL_COLUMNS) * 4;
    const to = keys + panel * keyPanelBytes + column;
    if (float) {
      scatter(row, headSteps, to, PANEL_COLUMNS * 4);
      continue;
    }
    flags |= quantiseRotated(spareKey);
    if (ASC_FEATURE_RELAXED_SIMD) {
      for (let i = 0; i < headBlocks * BLOCK; i += 16) {
        v128.store(codes + i, i8x16.add(v128.load(codes + i), i8x16.splat(<i8>OFFSET)));
      }
    }
    scatter(codes, headSteps, to, PANEL_COLUMNS * 4);
    scatter(rowScales, headBlocks, keyScales + panel * headBlocks * PANEL_COLUMNS * 4 + column, PANEL_COLUMNS * 4);
  }
  store<u8>(keyFlags + tile, flags);
}

/** Packs the `count` queries in `rows`; rows missing to a whole group become zeros. */
export function packQueries(count: i32, scale: f32): void {
  const bytes = headSize * 4;
  const whole = (count + GROUP_ROWS - 1) & ~(GROUP_ROWS - 1);
  memory.fill(rows + count * bytes, 0, (whole - count) * bytes);
  const fold = <f32>(scale * <f64>1.4426950408889634);
  for (let i = 0; i < whole; i++) {
    loadRow(i, fold);
    const group = i / GROUP_ROWS;
    const lane = (i % GROUP_ROWS) * 4;
    const to = queries + group * headSteps * GROUP_ROWS * 4 + lane;
    if (float) {
      scatter(row, headSteps, to, GROUP_ROWS * 4);
      continue;
    }
    const flags = quantiseRotated(spareQuery);
    const before: u8 = i % GROUP_ROWS ? load<u8>(queryFlags + group) : 0;
    store<u8>(queryFlags + group, before | <u8>flags);
    scatter(codes, headSteps, to, GROUP_ROWS * 4);
    for (let b = 0; b < headBlocks; b++) {
      // Scores are in units of 2^-7 log2, the last bit of a bf16.
      store<f32>(queryScales + (group * headBlocks + b) * GROUP_ROWS * 4 + lane, load<f32>(rowScales + b * 4) * 128);
    }
    if (ASC_FEATURE_RELAXED_SIMD) storeStarts(queryStarts + group * (1 + headBlocks) * GROUP_ROWS * 4 + lane);
  }
}

/** What takes back the OFFSET of the keys from the product with a query: in all and for each block. */
function storeStarts(to: usize): void {
  let total = 0;
  for (let b = 0; b < headBlocks; b++) {
    let four = i32x4.splat(0);
    for (let c = b * BLOCK; c < (b + 1) * BLOCK; c += 16) {
      four = i32x4.relaxed_dot_i8x16_i7x16_add_s(v128.load(codes + c), i8x16.splat(1), four);
    }
    const sum = <i32>sumOfLanes(f32x4.convert_i32x4_s(four));
    store<i32>(to + (1 + b) * GROUP_ROWS * 4, -OFFSET * sum);
    total += sum;
  }
  store<i32>(to, -OFFSET * total);
}

/** Packs the `count` values in `rows` as a tile; values missing to a whole tile become zeros. */
export function packValues(tile: i32, count: i32): void {
  const bytes = valueSize * 4;
  memory.fill(rows + count * bytes, 0, (TILE_KEYS - count) * bytes);
  let flags = 0;
  for (let p = 0; p < valuePanels; p++) {
    const from = rows + p * PANEL_COLUMNS * 4;
    const panel = tile * valuePanels + p;
    const to = values + panel * valuePanelBytes;
    if (float) {
      for (let t = 0; t < TILE_KEYS; t++) {
        v128.store(to + t * 32, v128.load(from + t * bytes));
        v128.store(to + t * 32, v128.load(from + t * bytes, 16), 16);
      }
      continue;
    }
    const scales = valueScales + panel * TILE_BLOCKS * PANEL_COLUMNS * 4;
    const second = from + BLOCK * bytes;
    const left0 = largestOfTokens(from, bytes), left1 = largestOfTokens(second, bytes);
    const right0 = largestOfTokens(from + 16, bytes), right1 = largestOfTokens(second + 16, bytes);
    const separate = areSeparate(left0, left1) || areSeparate(right0, right1);
    if (separate) flags = SEPARATE;
    if (ASC_FEATURE_RELAXED_SIMD) {
      packChannels<i8>(from, bytes, left0, left1, separate, to, scales);
      packChannels<i8>(from + 16, bytes, right0, right1, separate, to + 16, scales + 16);
    } else {
      packChannels<i16>(from, bytes, left0, left1, separate, to, scales);
      packChannels<i16>(from + 16, bytes, right0, right1, separate, to + 16, scales + 16);
    }
  }
  store<u8>(valueFlags + tile, flags);
}

/** Bits of the largest magnitudes of 4 channels in a block of tokens. */
function largestOfTokens(from: usize, stride: i32): v128 {
  let top = i32x4.splat(0);
  for (let t = 0; t < BLOCK; t++) top = i32x4.max_s(top, magnitudeBits(v128.load(from + t * stride)));
  return top;
}

/** Scale exponents of the tile's two blocks, with that of the other where a block is all zeros. */
@inline function exponentsOr(top: v128, other: v128): v128 {
  return v128.bitselect(
    scaleExponents(operand, other),
    scaleExponents(operand, top),
    i32x4.eq(top, i32x4.splat(0)),
  );
}

@inline function areSeparate(top0: v128, top1: v128): bool {
  const difference = i32x4.abs(i32x4.sub(exponentsOr(top0, top1), exponentsOr(top1, top0)));
  // A NaN belongs to its block alone.
  const spoiled = i32x4.ge_s(i32x4.max_s(top0, top1), i32x4.splat(INFINITE));
  return v128.any_true(v128.or(spoiled, i32x4.gt_s(difference, i32x4.splat(spareValue))));
}

/** Quantises the tile's tokens in 4 channels whose blocks have these largest magnitudes. */
function packChannels<T>(
  from: usize,
  stride: i32,
  top0: v128,
  top1: v128,
  separate: bool,
  to: usize,
  scales: usize,
): void {
  const exponent0 = exponentsOr(top0, top1), exponent1 = exponentsOr(top1, top0);
  const shared = i32x4.min_s(exponent0, exponent1);
  packBlock<T>(from, stride, top0, exponent0, separate ? exponent0 : shared, to, scales);
  packBlock<T>(
    from + BLOCK * stride,
    stride,
    top1,
    exponent1,
    separate ? exponent1 : shared,
    to + BLOCK * sizeof<T>() * PANEL_COLUMNS,
    scales + PANEL_COLUMNS * 4,
  );
}

/** Quantises a block of tokens in 4 channels to integers in units of `unit`. */
function packBlock<T>(
  from: usize,
  stride: i32,
  top: v128,
  exponent: v128,
  unit: v128,
  to: usize,
  scales: usize,
): void {
  v128.store(scales, integerScales(operand, unit, top));
  const inverse = inversePowers(exponent);
  const factor = integerFactors(operand, exponent, unit);
  const rounding = f32x4.splat(operand.rounding), largest = f32x4.splat(operand.largest);
  const tokens = 4 / sizeof<T>();
  for (let t = 0; t < BLOCK; t += tokens) {
    let step = i32x4.splat(0);
    for (let i = 0; i < tokens; i++) {
      const x = elementIntegers(f32x4.mul(v128.load(from + (t + i) * stride), inverse), rounding, largest, factor);
      const mask = i32x4.splat(sizeof<T>() == 1 ? 0xff : 0xffff);
      step = v128.or(step, i32x4.shl(v128.and(x, mask), i * 8 * sizeof<T>()));
    }
    v128.store(to + (t / tokens) * PANEL_COLUMNS * 4, step);
  }
}
