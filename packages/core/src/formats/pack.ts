import type { ElementFormat } from './element.js';

/** Bytes of `count` packed codes: 2 four-bit codes in a byte, 4 six-bit codes in 3 bytes, else one each. */
export function packedLength(format: ElementFormat, count: number): number {
  return Math.ceil((count * format.bits) / 8);
}

/**
 * Packs codes (one per byte) into a little-endian bit stream: code i occupies bits i * bits and up, the
 * first code in the lowest bits. The last byte is filled with zeros.
 */
export function packCodes(
  format: ElementFormat,
  codes: Uint8Array,
  packed: Uint8Array = new Uint8Array(packedLength(format, codes.length)),
): Uint8Array {
  let pending = 0;
  let pendingBits = 0;
  let at = 0;
  for (let i = 0; i < codes.length; i++) {
    pending |= codes[i]! << pendingBits;
    pendingBits += format.bits;
    while (pendingBits >= 8) {
      packed[at++] = pending;
      pending >>>= 8;
      pendingBits -= 8;
    }
  }
  if (pendingBits > 0) packed[at] = pending;
  return packed;
}

/** Inverse of {@link packCodes}: the first `codes.length` codes of the stream, one per byte. */
export function unpackCodes(format: ElementFormat, packed: Uint8Array, codes: Uint8Array): Uint8Array {
  const mask = (1 << format.bits) - 1;
  let pending = 0;
  let pendingBits = 0;
  let at = 0;
  for (let i = 0; i < codes.length; i++) {
    while (pendingBits < format.bits) {
      pending |= packed[at++]! << pendingBits;
      pendingBits += 8;
    }
    codes[i] = pending & mask;
    pending >>>= format.bits;
    pendingBits -= format.bits;
  }
  return codes;
}
