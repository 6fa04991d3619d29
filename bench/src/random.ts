/** Reproducible random numbers: the same seed gives the same numbers on every machine. */
export class Random {
  #state: number;
  #spare: number | null = null;

  constructor(seed: number) {
    this.#state = (seed * 0x9e3779b1) >>> 0;
  }

  /** Uniform in [0, 1), by the generator mulberry32. */
  uniform(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let z = this.#state;
    z = Math.imul(z ^ (z >>> 15), z | 1);
    z ^= z + Math.imul(z ^ (z >>> 7), z | 61);
    return ((z ^ (z >>> 14)) >>> 0) / 2 ** 32;
  }

  /** Standard normal, by the Box-Muller transform. */
  normal(): number {
    if (this.#spare !== null) {
      const spare = this.#spare;
      this.#spare = null;
      return spare;
    }
    const radius = Math.sqrt(-2 * Math.log(1 - this.uniform()));
    const angle = 2 * Math.PI * this.uniform();
    this.#spare = radius * Math.sin(angle);
    return radius * Math.cos(angle);
  }

  /** Independent normal numbers of one deviation. */
  normals(count: number, deviation = 1): Float64Array {
    return Float64Array.from({ length: count }, () => deviation * this.normal());
  }

  /** A random direction: a vector of length 1. */
  direction(size: number): Float64Array {
    const vector = this.normals(size);
    const norm = Math.sqrt(vector.reduce((sum, x) => sum + x * x, 0));
    return vector.map((x) => x / norm);
  }
}
