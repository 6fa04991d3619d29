import { encode } from 'fast-png';
import { SIZE, toBytes } from './pixels.js';

/** A PNG file of a picture [3, 64, 64] in -1..1. */
export function toPng(picture: Float32Array): Uint8Array {
  return encode({ width: SIZE, height: SIZE, data: toBytes(picture), channels: 3, depth: 8 });
}
