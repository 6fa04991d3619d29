/** Reproducible normal numbers. */
export function noise(count: number, seed: number): Float32Array {
  let state = seed;
  const uniform = () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (state + 1) / 2 ** 32;
  };
  const normal = () => Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform());
  return Float32Array.from({ length: count }, normal);
}
