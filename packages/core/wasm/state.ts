// The problem and the places of everything in memory. There is one of each: calls do not overlap.

import { ElementFormat } from './quantise';
import {
  BLOCK,
  BLOCK_ROWS,
  GROUP_ROWS,
  PANEL_COLUMNS,
  TILE_BLOCKS,
  TILE_KEYS,
  TILE_PANELS,
} from './sizes';

/** Stable ids of the recipes that the kernel implements. */
const F32 = 0;
const MXFP4 = 2;

/** What 8-bit integers are offset by to become the 7-bit operand of a relaxed dot product: 4 to 124. */
export const OFFSET = 64;

export let float: bool = false;
export let headSize: i32 = 0;
export let valueSize: i32 = 0;
/** 0 for none. */
export let softcap: f32 = 0;
export let biased: bool = false;

/** Format of query, key and value. */
export const operand = changetype<ElementFormat>(memory.data(sizeof<u32>() * 4, 16));
/** Format of the weights. */
export const weight = changetype<ElementFormat>(memory.data(sizeof<u32>() * 4, 16));
/** Bits by which integers of each operand may be shifted. */
export let spareQuery: i32 = 0;
export let spareKey: i32 = 0;
export let spareWeight: i32 = 0;
export let spareValue: i32 = 0;

export let headBlocks: i32 = 0;
/** Steps of a product along the head, along a block, and along a tile of keys. */
export let headSteps: i32 = 0;
export let blockSteps: i32 = 0;
export let tileSteps: i32 = 0;
export let keyPanelBytes: i32 = 0;
export let valuePanels: i32 = 0;
export let valuePanelBytes: i32 = 0;

/** BLOCK_ROWS (or TILE_KEYS) rows on their way in, output rows on their way out; f32, one after another. */
export let rows: usize = 0;
/** Of each query row: the keys it may see by position, i32 pairs [begin, end). */
export let visible: usize = 0;
/** Of each query row: a sink in nats, minus infinity for none. */
export let sinks: usize = 0;
/** Of each query row: the index of its row of `bias`, i32. */
export let biasIndex: usize = 0;
/** [BLOCK_ROWS][biasStride] f32 in nats; masked keys are minus infinity. */
export let bias: usize = 0;
export let biasStride: i32 = 0;

/** [tile][panel of keys][step][key], of each panel [block][key] scales, flags of each tile. */
export let keys: usize = 0;
export let keyScales: usize = 0;
export let keyFlags: usize = 0;
/** [tile][panel of channels][step][channel], of each panel [block][channel] scales, flags of each tile. */
export let values: usize = 0;
export let valueScales: usize = 0;
export let valueFlags: usize = 0;
/** [group of rows][step][row], of each group [block][row] scales, [1 + block][row] starts of products, flags. */
export let queries: usize = 0;
export let queryScales: usize = 0;
export let queryStarts: usize = 0;
export let queryFlags: usize = 0;

/** Rows of the state of the softmax: reference (f32), sum (4 f32, to be added up), out ([valuePanels][8] f32). */
export let reference: usize = 0;
export let sums: usize = 0;
export let out: usize = 0;
export let outStride: i32 = 0;
/** [GROUP_ROWS][TILE_KEYS] f32; [GROUP_ROWS][TILE_KEYS] codes; [TILE_BLOCKS][GROUP_ROWS] f32. */
export let scores: usize = 0;
export let weights: usize = 0;
export let weightScales: usize = 0;

/** One row being prepared: floats, integers, largest magnitudes and scales of its blocks. */
export let row: usize = 0;
export let codes: usize = 0;
export let tops: usize = 0;
export let rowScales: usize = 0;

// Wider than an address, to see when a problem is too large.
let end: u64 = 0;

function take(count: i32, bytes: i32): usize {
  const at = <usize>end;
  end += (<u64>count * <u64>bytes + 63) & ~63;
  return at;
}

/** Shift that keeps codes within `bits` bits and a sum of `terms` products of them and other such codes in i32. */
function spareBits(largest: f64, other: f64, terms: f64, limit: f64): i32 {
  let shift = 0;
  while (
    max(largest, other) * f64(2 << shift) <= limit &&
    terms * largest * other * f64(2 << shift) * f64(2 << shift) < 2147483648.0
  ) {
    shift++;
  }
  return shift;
}

function setFormats(four: bool): void {
  // 7.5 = 1.875 * 2^2, 6 = 1.5 * 2^2: the carries of the scale rule ceil.
  const sixBitRounding: f32 = 1.5 * 1048576;
  if (four) operand.set(0x3fffff, 1.5 * 4194304, 6, 2);
  else operand.set(0, sixBitRounding, 7.5, 8);
  weight.set(four ? 0x0fffff : 0, sixBitRounding, 7.5, 8);
  const largest: f64 = four ? 12 : 60;
  if (ASC_FEATURE_RELAXED_SIMD) {
    // Signed operands have 7 bits and a sign; weights and offset keys share 7 bits with their sign or nothing.
    spareQuery = spareValue = four ? 3 : 1;
    spareKey = four ? 2 : 0;
    spareWeight = 1;
  } else {
    spareQuery = spareKey = spareBits(largest, largest, f64(headBlocks * BLOCK), 32767);
    spareWeight = spareValue = spareBits(60, largest, TILE_KEYS, 32767);
  }
}

/**
 * Lays out memory for one problem.
 *
 * @returns the bytes of memory that it takes; they must be there before any other call.
 */
export function configure(
  precision: i32,
  keyLength: i32,
  headChannels: i32,
  valueChannels: i32,
  cap: f32,
  hasBias: bool,
): f64 {
  float = precision == F32;
  headSize = headChannels;
  valueSize = valueChannels;
  softcap = cap;
  biased = hasBias;
  const elementBytes = float ? 4 : ASC_FEATURE_RELAXED_SIMD ? 1 : 2;
  const tiles = (keyLength + TILE_KEYS - 1) / TILE_KEYS;
  headBlocks = (headSize + BLOCK - 1) / BLOCK;
  headSteps = (headSize * elementBytes + 3) / 4;
  blockSteps = (BLOCK * elementBytes) / 4;
  tileSteps = (TILE_KEYS * elementBytes) / 4;
  keyPanelBytes = headSteps * PANEL_COLUMNS * 4;
  valuePanels = (valueSize + PANEL_COLUMNS - 1) / PANEL_COLUMNS;
  valuePanelBytes = tileSteps * PANEL_COLUMNS * 4;
  biasStride = tiles * TILE_KEYS;
  outStride = valuePanels * PANEL_COLUMNS * 4;
  setFormats(precision == MXFP4);

  end = (__heap_base + 63) & ~63;
  // The last vector of a row may reach over its end.
  rows = take(BLOCK_ROWS * max(headSize, valueSize) + PANEL_COLUMNS, 4);
  visible = take(BLOCK_ROWS, 8);
  sinks = take(BLOCK_ROWS, 4);
  biasIndex = take(BLOCK_ROWS, 4);
  bias = take(biased ? BLOCK_ROWS * biasStride : 0, 4);
  const groups = BLOCK_ROWS / GROUP_ROWS;
  queries = take(groups * headSteps * GROUP_ROWS, 4);
  queryScales = take(groups * headBlocks * GROUP_ROWS, 4);
  queryStarts = take(groups * (1 + headBlocks) * GROUP_ROWS, 4);
  queryFlags = take(groups, 1);
  reference = take(BLOCK_ROWS, 4);
  sums = take(BLOCK_ROWS, 16);
  out = take(BLOCK_ROWS, outStride);
  scores = take(GROUP_ROWS * TILE_KEYS, 4);
  weights = take(GROUP_ROWS * TILE_KEYS, 2);
  weightScales = take(TILE_BLOCKS * GROUP_ROWS, 4);
  row = take(headBlocks * BLOCK, 4);
  codes = take(headBlocks * BLOCK, 2);
  tops = take(headBlocks, 4);
  rowScales = take(headBlocks, 4);
  keys = take(tiles * TILE_PANELS, keyPanelBytes);
  keyScales = take(tiles * TILE_KEYS * headBlocks, 4);
  keyFlags = take(tiles, 1);
  values = take(tiles * valuePanels, valuePanelBytes);
  valueScales = take(tiles * TILE_BLOCKS, outStride);
  valueFlags = take(tiles, 1);
  return <f64>end;
}
