/** Median of times in ms, the first left out where there are others; undefined for none. */
export function typical(times: readonly number[]): number | undefined {
  const later = (times.length > 1 ? times.slice(1) : [...times]).sort((a, b) => a - b);
  const middle = later.length >> 1;
  return later.length % 2 === 1 ? later[middle] : later.length && (later[middle - 1]! + later[middle]!) / 2;
}

export function milliseconds(ms: number): string {
  return ms >= 1000 ? `${(ms / 1000).toFixed(2)} s` : `${ms.toFixed(ms < 10 ? 2 : 1)} ms`;
}
