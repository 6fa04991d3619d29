// Fused-Softmax (arXiv 2611.09225): the reference of a row is the maximum of its first tile with a visible key, then
// frozen. A weight is P = 2^(score - reference) by Schraudolph's map, whose bits are an affine function of the exponent,
// rounded to bf16, then to E2M3 in blocks of 32 keys. A score more than ROLLBACK above the reference raises it. The
// sum is that of the same weights.
//
// Scores come in units of 2^-7 log2: 1 is the last bit of a bf16, so that the map is one addition. Budget per 4
// scores: a load and a maximum to find the block's scale, 14 instructions from score to code. What is done once for a row
// or block is done for the 4 rows of a group at a time, a lane for each.

import { inversePowers, powers, scaleExponents } from './quantise';
import { raise } from './row-state';
import { BLOCK, GROUP_ROWS, TILE_BLOCKS, TILE_KEYS } from './sizes';
import { reference, scores, spareWeight, sums, weight, weights, weightScales } from './state';
import { largestLanes, roundToInts, toInts } from './vector';

export const UNIT: f32 = 128;

/** Schraudolph's correction with the least rms ripple, 60801 / 2^20 log2. */
const CORRECTION: f32 = UNIT * (60801.0 / 1048576.0);
/** Above the reference the weight would pass 448: the affine value is 135.75 * UNIT there. */
const ROLLBACK: f32 = UNIT * (135.75 - 127) + CORRECTION;
/** The affine value of 1, in the middle of bf16's bits; weights of 0 lie as far below. */
const ONE: f32 = UNIT * 127;
/** 1.5 * 2^23 + ONE: the low 16 bits of what it is added to become the rounded bf16. */
const TO_BF16: f32 = 12582912 + ONE;
/** Bits of a bf16 below which a block counts as zeros: 2^-80 of the reference. */
const NEGLIGIBLE = (127 - 80) << 7;

const SCORE_ROW_BYTES = TILE_KEYS * 4;

/** How the scores of a block become codes; a lane for each row. */
@unmanaged class BlockRule {
  /** The inverse of the codes' unit. */
  inverse: v128;
  /** Codes of the element 1, below which steps no longer halve. */
  one: v128;
  /** The largest code. */
  limit: v128;
}

const rules = memory.data(2 * offsetof<BlockRule>(), 16);

@inline function largestOfBlock(row: usize): v128 {
  let top = v128.load(row);
  for (let i = 16; i < BLOCK * 4; i += 16) top = f32x4.pmax(top, v128.load(row + i));
  return top;
}

/** The largest score of a block in each row of the group. */
@inline function largestOfBlocks(block: usize): v128 {
  return largestLanes(
    largestOfBlock(block),
    largestOfBlock(block + SCORE_ROW_BYTES),
    largestOfBlock(block + 2 * SCORE_ROW_BYTES),
    largestOfBlock(block + 3 * SCORE_ROW_BYTES),
  );
}

function anyNaN(row: usize): bool {
  let nan = i32x4.splat(0);
  for (let i = row; i < row + TILE_KEYS * 4; i += 16) {
    const s = v128.load(i);
    nan = v128.or(nan, f32x4.ne(s, s));
  }
  return v128.any_true(nan);
}

/** Sets or raises the references of the group's rows that need it; few tiles have any. */
function moveReferences(group: i32, top: v128, suspicious: bool): void {
  store<v128>(rules, top);
  for (let r = 0; r < GROUP_ROWS; r++) {
    const row = group * GROUP_ROWS + r;
    let largest = load<f32>(rules + r * 4);
    if (suspicious && anyNaN(scores + r * SCORE_ROW_BYTES)) largest = NaN;
    // Written so that NaN raises the reference, too.
    if (!(largest - load<f32>(reference + row * 4) * UNIT <= ROLLBACK)) raise(row, largest / UNIT);
  }
}

/** Biased scale exponents of blocks of weights with these largest scores; -1 for blocks of zeros. */
@inline function blockExponents(largest: v128, subtracted: v128): v128 {
  const affine = f32x4.pmax(f32x4.splat(-ONE), f32x4.sub(largest, subtracted));
  const bf16 = i32x4.add(roundToInts(affine), i32x4.splat(<i32>ONE));
  const exponents = scaleExponents(weight, i32x4.shl(bf16, 16));
  return v128.or(exponents, i32x4.lt_s(bf16, i32x4.splat(NEGLIGIBLE)));
}

/** Stores how to weigh a block, and the scale of its codes, 0 in rows that are not `live`. */
@inline function setRule(block: i32, exponent: v128, unit: v128, live: v128): void {
  const rule = changetype<BlockRule>(rules + block * offsetof<BlockRule>());
  const above = i32x4.shl(i32x4.sub(exponent, unit), 23);
  // Integers of an element are 8 at 1 and at most 60.
  rule.inverse = i32x4.add(inversePowers(unit), i32x4.splat(3 << 23));
  rule.one = i32x4.add(above, i32x4.splat((127 + 3) << 23));
  rule.limit = toInts(f32x4.mul(i32x4.add(above, i32x4.splat(127 << 23)), f32x4.splat(60)));
  v128.store(weightScales + block * GROUP_ROWS * 4, v128.and(f32x4.mul(powers(unit), f32x4.splat(0.125)), live));
}

/** Codes of 4 weights: rounded to steps of their elements, which are 2^-3 at `one`. */
@inline function weigh(score: v128, subtracted: v128, inverse: v128, one: v128): v128 {
  const affine = f32x4.pmax(f32x4.sub(score, subtracted), f32x4.splat(-ONE));
  // What is above the bf16 shifts out.
  const p = i32x4.shl(f32x4.add(affine, f32x4.splat(TO_BF16)), 16);
  const x = f32x4.mul(p, inverse);
  // Adding 1.5 * 2^20 times the power of two of x, but not less than `one`, rounds to 4 significant bits.
  const power = i32x4.max_s(v128.and(x, i32x4.splat(0x7f800000)), one);
  const magic = i32x4.add(power, i32x4.splat((20 << 23) + 0x00400000));
  return toInts(f32x4.sub(f32x4.add(x, magic), magic));
}

/** Writes the codes of one row in a block. Returns their sum in 4 parts. */
@inline function weighBlock<T>(row: usize, rule: usize, subtractedScore: f32, codes: usize): v128 {
  const subtracted = f32x4.splat(subtractedScore);
  const inverse = v128.load_splat<u32>(rule, offsetof<BlockRule>('inverse'));
  const one = v128.load_splat<u32>(rule, offsetof<BlockRule>('one'));
  if (sizeof<T>() == 2) {
    const limit = i16x8.splat(load<i16>(rule, offsetof<BlockRule>('limit')));
    let sum = i16x8.splat(0);
    for (let i = 0; i < BLOCK; i += 8) {
      const at = row + i * 4;
      const x0 = weigh(v128.load(at), subtracted, inverse, one);
      const x1 = weigh(v128.load(at, 16), subtracted, inverse, one);
      const x = i16x8.min_s(i16x8.narrow_i32x4_s(x0, x1), limit);
      v128.store(codes + i * 2, x);
      // At most four times 60 << 6.
      sum = i16x8.add(sum, x);
    }
    return i32x4.dot_i16x8_s(sum, i16x8.splat(1));
  }
  const limit = i8x16.splat(load<i8>(rule, offsetof<BlockRule>('limit')));
  let sum = i32x4.splat(0);
  for (let i = 0; i < BLOCK; i += 16) {
    const at = row + i * 4;
    const x0 = weigh(v128.load(at), subtracted, inverse, one);
    const x1 = weigh(v128.load(at, 16), subtracted, inverse, one);
    const x2 = weigh(v128.load(at, 32), subtracted, inverse, one);
    const x3 = weigh(v128.load(at, 48), subtracted, inverse, one);
    const low = i16x8.narrow_i32x4_s(x0, x1), high = i16x8.narrow_i32x4_s(x2, x3);
    const x = i8x16.min_u(i8x16.narrow_i16x8_u(low, high), limit);
    v128.store(codes + i, x);
    sum = i32x4.relaxed_dot_i8x16_i7x16_add_s(i8x16.splat(1), x, sum);
  }
  return sum;
}

@inline function scaled(codes: v128, scale: usize): v128 {
  return f32x4.mul(f32x4.convert_i32x4_s(codes), v128.load_splat<u32>(scale));
}

/**
 * Turns the scores of a group of rows into codes of weights and their scales.
 *
 * @param suspicious whether a score may be NaN.
 * @returns how many products with values the tile takes: none where all weights are 0, one, or one for each block
 *   because some row has a different scale in each.
 */
export function fusedSoftmax<T>(group: i32, suspicious: bool): i32 {
  const references = reference + group * GROUP_ROWS * 4;
  const top0 = largestOfBlocks(scores), top1 = largestOfBlocks(scores + BLOCK * 4);
  const top = f32x4.pmax(top0, top1);
  let m = f32x4.mul(v128.load(references), f32x4.splat(UNIT));
  if (suspicious || !v128.all_true<i32>(f32x4.le(f32x4.sub(top, m), f32x4.splat(ROLLBACK)))) {
    moveReferences(group, top, suspicious);
    m = f32x4.mul(v128.load(references), f32x4.splat(UNIT));
  }
  const subtracted = f32x4.add(m, f32x4.splat(CORRECTION));
  const exponent0 = blockExponents(top0, subtracted), exponent1 = blockExponents(top1, subtracted);
  // Rows that have seen no key, or NaN, or nothing but zeros here, get codes that mean nothing and a scale of 0.
  const nonzero = i32x4.ge_s(i32x4.max_s(exponent0, exponent1), i32x4.splat(0));
  const live = v128.and(nonzero, f32x4.gt(m, f32x4.splat(-Infinity)));
  if (!v128.any_true(live)) return 0;
  const zero0 = i32x4.shr_s(exponent0, 31), zero1 = i32x4.shr_s(exponent1, 31);
  const e0 = i32x4.max_s(v128.bitselect(exponent1, exponent0, zero0), i32x4.splat(0));
  const e1 = i32x4.max_s(v128.bitselect(exponent0, exponent1, zero1), i32x4.splat(0));
  const separate = i32x4.gt_s(i32x4.abs(i32x4.sub(e0, e1)), i32x4.splat(spareWeight));
  const shared = i32x4.min_s(e0, e1);
  setRule(0, e0, v128.bitselect(e0, shared, separate), live);
  setRule(1, e1, v128.bitselect(e1, shared, separate), live);
  for (let r = 0; r < GROUP_ROWS; r++) {
    const lane = <usize>r * 4;
    const row = scores + r * SCORE_ROW_BYTES;
    const codes = weights + r * TILE_KEYS * sizeof<T>();
    const s = load<f32>(references + lane) * UNIT + CORRECTION;
    const sum0 = weighBlock<T>(row, rules + lane, s, codes);
    const rule1 = rules + offsetof<BlockRule>() + lane;
    const sum1 = weighBlock<T>(row + BLOCK * 4, rule1, s, codes + BLOCK * sizeof<T>());
    const parts = f32x4.add(scaled(sum0, weightScales + lane), scaled(sum1, weightScales + GROUP_ROWS * 4 + lane));
    const sum = sums + (group * GROUP_ROWS + r) * 16;
    v128.store(sum, f32x4.add(v128.load(sum), parts));
  }
  return v128.any_true(separate) ? TILE_BLOCKS : 1;
}
