export const SIZE = 64;

/** [3, 64, 64] in -1..1 to bytes [64, 64, 3]. */
export function toBytes(picture: Float32Array): Uint8Array {
  const pixels = SIZE * SIZE;
  const bytes = new Uint8Array(3 * pixels);
  for (let i = 0; i < pixels; i++) {
    for (let c = 0; c < 3; c++) {
      bytes[i * 3 + c] = Math.round((clip(picture[c * pixels + i]!) + 1) * 127.5);
    }
  }
  return bytes;
}

/** Peak signal-to-noise ratio in dB of two pictures in -1..1, clipped but not rounded; Infinity for equal ones. */
export function psnr(a: Float32Array, b: Float32Array): number {
  let squares = 0;
  for (let i = 0; i < a.length; i++) squares += (clip(a[i]!) - clip(b[i]!)) ** 2;
  const range = 2;
  return 10 * Math.log10((range ** 2 * a.length) / squares);
}

function clip(value: number): number {
  return Math.min(1, Math.max(-1, value));
}
