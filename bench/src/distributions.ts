import { fromBf16, toBf16 } from '@mxattn/core';
import { Random } from './random.js';

/** One head of attention inputs, rounded to bfloat16. */
export interface Head {
  /** [queries][size] */
  query: Float32Array;
  /** [keys][size] */
  key: Float32Array;
  /** [keys][size] */
  value: Float32Array;
}

/** Sizes of a head. */
export interface HeadShape {
  queries: number;
  keys: number;
  size: number;
}

/** Keys of one step of AMD's kernels; hotspots and stairs of the stress inputs come in this unit. */
const KERNEL_TILE = 128;

type Matrix = Float64Array;
type Generator = (shape: HeadShape, random: Random) => { query: Matrix; key: Matrix; value: Matrix };

/** Adds factor(row) * direction to the rows first..end. */
function addDirection(
  rows: Matrix,
  direction: Matrix,
  first: number,
  end: number,
  factor: (row: number) => number,
): void {
  const size = direction.length;
  for (let row = first; row < end; row++) {
    const f = factor(row);
    for (let c = 0; c < size; c++) rows[row * size + c] = rows[row * size + c]! + f * direction[c]!;
  }
}

/** Length at which two aligned vectors have a score of `nats` under the scale 1 / sqrt(size). */
function amplitude(nats: number, size: number): number {
  return Math.sqrt(nats * Math.sqrt(size));
}

const normal: Generator = ({ queries, keys, size }, random) => ({
  query: random.normals(queries * size),
  key: random.normals(keys * size),
  value: random.normals(keys * size),
});

/** Rows of unit root mean square, times one clipped log-normal scale per channel. */
function scaledRows(
  rows: number,
  size: number,
  deviation: number,
  [least, most]: [number, number],
  random: Random,
): Matrix {
  const matrix = random.normals(rows * size);
  const scales = random.normals(size).map((x) => Math.min(Math.max(Math.exp(deviation * x), least), most));
  for (let row = 0; row < rows; row++) {
    const values = matrix.subarray(row * size, (row + 1) * size);
    const rms = Math.sqrt(values.reduce((sum, x) => sum + x * x, 0) / size);
    for (let c = 0; c < size; c++) values[c] = (values[c]! / rms) * scales[c]!;
  }
  return matrix;
}

/** `count` different indices below `limit`. */
function sample(count: number, limit: number, random: Random): Set<number> {
  const chosen = new Set<number>();
  while (chosen.size < count) chosen.add(Math.floor(random.uniform() * limit));
  return chosen;
}

const transformer: Generator = ({ queries, keys, size }, random) => {
  const query = scaledRows(queries, size, 0.35, [0.35, 2.5], random);
  const key = scaledRows(keys, size, 0.35, [0.35, 2.5], random);
  const value = scaledRows(keys, size, 0.45, [0.25, 3.5], random);
  // A query and the key at its position have a part in common.
  const shared = random.normals(Math.min(queries, keys) * size, 0.35);
  shared.forEach((x, i) => {
    query[i] = query[i]! + x;
    key[i] = key[i]! + x;
  });
  const channels = sample(Math.max(1, Math.floor(size / 16)), size, random);
  const tokens = sample(Math.max(1, Math.floor(keys / 128)), keys, random);
  value.forEach((x, i) => {
    value[i] = x * (channels.has(i % size) ? 4 : 1) * (tokens.has(Math.floor(i / size)) ? 2.5 : 1);
  });
  return { query, key, value };
};

/** Four leading keys that every query leans to. */
const sink: Generator = (shape, random) => {
  const head = transformer(shape, random);
  const direction = random.direction(shape.size);
  addDirection(head.key, direction, 0, Math.min(4, shape.keys), () => 12);
  addDirection(head.query, direction, 0, shape.queries, () => 3);
  return head;
};

/** Small noise, but for one tile of keys that lie along the direction of all queries. */
function hotspot(
  firstHot: (keys: number) => number,
  nats: number,
  strength: (random: Random) => number,
): Generator {
  return ({ queries, keys, size }, random) => {
    const direction = random.direction(size);
    const length = amplitude(nats, size);
    const query = random.normals(queries * size, 0.35);
    const key = random.normals(keys * size, 0.3);
    addDirection(query, direction, 0, queries, () => length * strength(random));
    const first = firstHot(keys);
    const end = Math.min(first + KERNEL_TILE, keys);
    key.set(random.normals((end - first) * size, 0.1), first * size);
    addDirection(key, direction, first, end, () => length);
    return { query, key, value: random.normals(keys * size, 0.5) };
  };
}

/** A hotspot of 16 nats in the first tile, as strong as 0.4 to 1 of it from row to row. */
const underflow = hotspot(
  () => 0,
  16,
  (random) => 0.4 + 0.6 * random.uniform(),
);

/** A hotspot of 40 nats in the last tile. */
const latesink = hotspot(
  (keys) => Math.max(0, keys - KERNEL_TILE),
  40,
  () => 1,
);

/** One key in every tile lies 12 log2 units above that of the tile before; half of that for every other 128 queries. */
const maxstair: Generator = ({ queries, keys, size }, random) => {
  const direction = random.direction(size);
  const tiles = Math.ceil(keys / KERNEL_TILE);
  const length = amplitude(12 * Math.LN2 * tiles, size);
  const query = random.normals(queries * size, 0.35);
  const key = random.normals(keys * size, 0.3);
  addDirection(query, direction, 0, queries, (row) => (Math.floor(row / 128) % 2 ? length / 2 : length));
  for (let tile = 0; tile < tiles; tile++) {
    const width = Math.min(KERNEL_TILE, keys - tile * KERNEL_TILE);
    const hot = tile * KERNEL_TILE + Math.floor(random.uniform() * width);
    addDirection(key, direction, hot, hot + 1, () => (length * (tile + 1)) / tiles);
  }
  return { query, key, value: random.normals(keys * size, 0.5) };
};

const generators = { normal, transformer, sink, underflow, latesink, maxstair } as const;

/** Names of the input distributions. */
export type DistributionName = keyof typeof generators;

/** All of them, the plain one first. */
export const distributionNames = Object.keys(generators) as DistributionName[];

/**
 * Inputs of one head. Apart from `normal` and `maxstair` they follow the definitions of AMD's attention benchmark.
 *
 * @param temperature factor on the query: above 1, attention is more peaked.
 */
export function makeHead(name: DistributionName, shape: HeadShape, seed: number, temperature = 1): Head {
  const { query, key, value } = generators[name](shape, new Random(seed));
  const round = (values: Matrix, factor: number) =>
    Float32Array.from(values, (x) => fromBf16(toBf16(x * factor)));
  return { query: round(query, temperature), key: round(key, 1), value: round(value, 1) };
}
