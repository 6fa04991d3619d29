// MX blocks as integers. An E2M3 element times 8 and an E2M1 element times 2 are integers of at most 60 and 12.
//
// Blocks that share a row differ in their scales by a few powers of two. Where the integer type has the bits, all
// integers of a row are shifted to the unit of its smallest scale: then the row has one scale, a product over all of
// it stays an integer, and nothing is lost. A row whose scales are further apart keeps its blocks SEPARATE.

import { BLOCK, SEPARATE, SUSPICIOUS } from './sizes';
import { toInts } from './vector';

const ABSOLUTE = 0x7fffffff;
const EXPONENT = 0x7f800000;
/** Bits of infinity: those of NaN are larger. */
export const INFINITE = 0x7f800000;
/** 2^60: the product of two scales may overflow when one belongs to a larger magnitude. */
const HUGE = 0x5d800000;

/** A format of operands, by its constants. */
@unmanaged export class ElementFormat {
  /**
   * Added to the bits of a block's largest magnitude before its exponent is taken: 0 for the scale rule `floor`; for
   * `ceil` what carries into the exponent where the magnitude is above the format's largest at that exponent.
   */
  scaleCarry: i32;
  /** 1.5 * 2^23 over the number of steps in [1, 2): adding it, times the element's power of two, rounds to a step. */
  rounding: f32;
  largest: f32;
  /** Multiplies an element to an integer. */
  toInteger: f32;

  set(scaleCarry: i32, rounding: f32, largest: f32, toInteger: f32): void {
    this.scaleCarry = scaleCarry;
    this.rounding = rounding;
    this.largest = largest;
    this.toInteger = toInteger;
  }
}

/** Bits of the magnitudes; those of NaN are the largest. */
@inline export function magnitudeBits(x: v128): v128 {
  return v128.and(x, i32x4.splat(ABSOLUTE));
}

/** Biased E8M0 exponents of the scales of blocks with these largest magnitudes; both formats have emax = 2. */
@inline export function scaleExponents(format: ElementFormat, largest: v128): v128 {
  const e = i32x4.sub(i32x4.shr_u(i32x4.add(largest, i32x4.splat(format.scaleCarry)), 23), i32x4.splat(2));
  return i32x4.max_s(e, i32x4.splat(0));
}

/** 2^e of biased exponents; e = -127 is a subnormal. */
@inline export function powers(biased: v128): v128 {
  return v128.bitselect(
    i32x4.splat(0x00400000),
    i32x4.shl(biased, 23),
    i32x4.eq(biased, i32x4.splat(0)),
  );
}

/** 2^-e of biased exponents. */
@inline export function inversePowers(biased: v128): v128 {
  return i32x4.shl(i32x4.sub(i32x4.splat(254), biased), 23);
}

/** Scales of integers; NaN for a block with a NaN or an infinity. */
@inline export function integerScales(format: ElementFormat, biased: v128, largest: v128): v128 {
  const scales = f32x4.div(powers(biased), f32x4.splat(format.toInteger));
  return v128.or(scales, i32x4.ge_s(largest, i32x4.splat(INFINITE)));
}

/**
 * Elements (already divided by their scale) times `factor` as integers: rounded to nearest even, saturated. The other
 * arguments are a format's constants, in vectors so that loops do not load them again.
 */
@inline export function elementIntegers(x: v128, rounding: v128, largest: v128, factor: v128): v128 {
  const power = v128.and(x, i32x4.splat(EXPONENT));
  const magic = f32x4.mul(f32x4.pmax(power, f32x4.splat(1)), rounding);
  const rounded = f32x4.sub(f32x4.add(x, magic), magic);
  const element = f32x4.pmax(f32x4.pmin(rounded, largest), f32x4.neg(largest));
  return toInts(f32x4.mul(element, factor));
}

/** 2^(exponent - unit) times the format's integer factor: takes elements to integers of that unit; a block of zeros may lie below it. */
@inline export function integerFactors(format: ElementFormat, exponent: v128, unit: v128): v128 {
  const above = i32x4.max_s(i32x4.sub(exponent, unit), i32x4.splat(0));
  return f32x4.mul(i32x4.shl(i32x4.add(above, i32x4.splat(127)), 23), f32x4.splat(format.toInteger));
}

/** Bits of the largest magnitude of a block. */
function largestOfBlock(block: usize): i32 {
  let top = magnitudeBits(v128.load(block));
  for (let i = 16; i < BLOCK * 4; i += 16) top = i32x4.max_s(top, magnitudeBits(v128.load(block + i)));
  return max(
    max(i32x4.extract_lane(top, 0), i32x4.extract_lane(top, 1)),
    max(i32x4.extract_lane(top, 2), i32x4.extract_lane(top, 3)),
  );
}

/**
 * Quantises a row of whole blocks.
 *
 * @param spare bits of an integer that may be used to shift.
 * @param tops room for an i32 per block.
 * @param codes integers of type T.
 * @param scales an f32 per block; all are the same unless the result has SEPARATE.
 * @returns a set of flags.
 */
export function quantiseRow<T>(
  format: ElementFormat,
  row: usize,
  blocks: i32,
  spare: i32,
  tops: usize,
  codes: usize,
  scales: usize,
): i32 {
  let lowest = 255, highest = 0, largest = 0;
  for (let b = 0; b < blocks; b++) {
    const top = largestOfBlock(row + b * BLOCK * 4);
    store<i32>(tops + b * 4, top);
    largest = max(largest, top);
    // Zeros are zeros in any unit.
    if (top == 0) continue;
    const exponent = i32x4.extract_lane(scaleExponents(format, i32x4.splat(top)), 0);
    lowest = min(lowest, exponent);
    highest = max(highest, exponent);
  }
  const separate = highest - lowest > spare;
  const rounding = f32x4.splat(format.rounding), limit = f32x4.splat(format.largest);
  for (let b = 0; b < blocks; b++) {
    const top = i32x4.splat(load<i32>(tops + b * 4));
    const exponent = scaleExponents(format, top);
    const unit = separate ? exponent : i32x4.splat(min(lowest, highest));
    // A NaN spoils every score of the row, so it may as well spoil every block.
    store<f32>(scales + b * 4, f32x4.extract_lane(integerScales(format, unit, i32x4.splat(largest)), 0));
    const inverse = inversePowers(exponent);
    const factor = integerFactors(format, exponent, unit);
    const from = row + b * BLOCK * 4;
    const to = codes + b * BLOCK * sizeof<T>();
    for (let i = 0; i < BLOCK; i += 16) {
      const at = from + i * 4;
      const x0 = elementIntegers(f32x4.mul(v128.load(at), inverse), rounding, limit, factor);
      const x1 = elementIntegers(f32x4.mul(v128.load(at, 16), inverse), rounding, limit, factor);
      const x2 = elementIntegers(f32x4.mul(v128.load(at, 32), inverse), rounding, limit, factor);
      const x3 = elementIntegers(f32x4.mul(v128.load(at, 48), inverse), rounding, limit, factor);
      const low = i16x8.narrow_i32x4_s(x0, x1), high = i16x8.narrow_i32x4_s(x2, x3);
      if (sizeof<T>() == 2) {
        v128.store(to + i * 2, low);
        v128.store(to + i * 2, high, 16);
      } else {
        v128.store(to + i, i8x16.narrow_i16x8_s(low, high));
      }
    }
  }
  return (separate ? SEPARATE : 0) | (largest >= HUGE ? SUSPICIOUS : 0);
}
