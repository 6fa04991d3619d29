/** Uniform numbers in [0, 1) from a 32-bit seed. */
export function uniform(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let z = state;
    z = Math.imul(z ^ (z >>> 15), z | 1);
    z ^= z + Math.imul(z ^ (z >>> 7), z | 61);
    return ((z ^ (z >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Normally distributed float32 numbers. */
export function normal(length: number, seed: number, deviation = 1): Float32Array {
  const next = uniform(seed);
  return Float32Array.from(
    { length },
    () => deviation * Math.sqrt(-2 * Math.log(1 - next())) * Math.cos(2 * Math.PI * next()),
  );
}
