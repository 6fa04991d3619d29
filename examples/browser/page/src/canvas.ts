import { toBytes } from '@mxattn/example-diffusion/web';
import { make } from './elements.js';

const SIZE = 64;

export function pictureCanvas(label: string): HTMLCanvasElement {
  const canvas = make('canvas', { width: SIZE, height: SIZE, ariaLabel: label });
  canvas.setAttribute('role', 'img');
  return canvas;
}

/** Paints a picture [3, 64, 64] in -1..1. */
export function paint(canvas: HTMLCanvasElement, picture: Float32Array): void {
  paintBytes(canvas, toBytes(picture));
}

/** Paints how much two pictures differ: black where not at all. */
export function paintDifference(
  canvas: HTMLCanvasElement,
  a: Float32Array,
  b: Float32Array,
  gain: number,
): void {
  const [left, right] = [toBytes(a), toBytes(b)];
  paintBytes(
    canvas,
    left.map((value, i) => Math.min(255, Math.abs(value - right[i]!) * gain)),
  );
}

function paintBytes(canvas: HTMLCanvasElement, bytes: Uint8Array): void {
  const image = new ImageData(SIZE, SIZE);
  for (let i = 0; i < SIZE * SIZE; i++) {
    image.data.set(bytes.subarray(3 * i, 3 * i + 3), 4 * i);
    image.data[4 * i + 3] = 255;
  }
  canvas.getContext('2d')?.putImageData(image, 0, 0);
}
