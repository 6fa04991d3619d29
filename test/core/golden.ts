import { readFileSync } from 'node:fs';

/** A golden file, parsed. */
export function golden<T>(name: string): T {
  return JSON.parse(readFileSync(new URL(`../golden/${name}.json`, import.meta.url), 'utf8')) as T;
}

/** ||a - b|| / ||b|| */
export function relativeError(a: ArrayLike<number>, b: ArrayLike<number>): number {
  let difference = 0;
  let norm = 0;
  for (let i = 0; i < b.length; i++) {
    difference += (a[i]! - b[i]!) ** 2;
    norm += b[i]! ** 2;
  }
  return Math.sqrt(difference / norm);
}

/** Largest |a - b|; NaN if any is. */
export function largestDifference(a: ArrayLike<number>, b: ArrayLike<number>): number {
  let largest = 0;
  for (let i = 0; i < b.length; i++) largest = Math.max(largest, Math.abs(a[i]! - b[i]!));
  return largest;
}
