import type { EfqCalibration } from '@mxattn/core';
import { conventional, efqPipeline, fused, type PrecisionName, type Recipe, recipes } from '@mxattn/core';
import { type DistributionName, distributionNames, type HeadShape } from './distributions.js';
import type { Job } from './experiment.js';

/** The precisions of the Fused-Softmax paper, with its errors of the complete pipeline in percent. */
export const published = { mxfp8: 5.69, mxfp6: 6.46, mxfp4: 20.53 } as const;

/** Names of those precisions. */
export type PaperPrecision = keyof typeof published;

export const paperPrecisions = Object.keys(published) as PaperPrecision[];

const others: readonly PrecisionName[] = [
  'mxfp8-lifted',
  'mxfp6-direct',
  'f4f8',
  'f6f8',
  'f6f4',
  'f8f6',
  'efq4',
  'efq4-lut',
];

/** Other recipes of the library, and exponents aligned for 8-bit integers, measured on the same inputs. */
export const variants: readonly Recipe[] = [
  ...others.map((name) => recipes[name]),
  { ...recipes.mxfp6, name: 'mxfp6 aligned', aligned: true },
  { ...recipes.mxfp4, name: 'mxfp4 aligned', aligned: true },
];

export const seeds = Array.from({ length: 10 }, (_, i) => i + 1);

/** The paper's shape; a sample of its 4096 queries, which are independent of each other. */
export const paperShape: HeadShape = { queries: 256, keys: 4096, size: 128 };
export const stressShape: HeadShape = { queries: 128, keys: 1024, size: 128 };
// Two groups of queries; and only a stair of more than 128 log2 units also leaves the range of bfloat16.
export const stairShape: HeadShape = { queries: 256, keys: 2048, size: 128 };
export const efqShape: HeadShape = { queries: 128, keys: 1024, size: 128 };
const calibrationShape: HeadShape = { queries: 64, keys: 512, size: 128 };

export const keyLengths = [256, 512, 1024, 2048, 4096, 8192, 16384];
export const headSizes = [32, 64, 80, 96, 128, 256];
const sweepSeeds = seeds.slice(0, 3);

/** Inputs on which EFQ-Softmax is compared. */
export const efqSettings: readonly { distribution: DistributionName; temperature: number }[] = [
  { distribution: 'normal', temperature: 1 },
  { distribution: 'normal', temperature: 2 },
  { distribution: 'normal', temperature: 4 },
  { distribution: 'transformer', temperature: 1 },
  { distribution: 'transformer', temperature: 2 },
  { distribution: 'transformer', temperature: 4 },
];

function operandOf(recipe: Recipe) {
  const { weights } = recipe.softmax;
  if (weights.kind !== 'exponential' || !weights.operand) throw new Error(`${recipe.name} rounds no weights`);
  return weights.operand;
}

/** A paper's precision with conventional softmax, with Fused-Softmax, and with that but without rollback. */
function pipelines(name: PaperPrecision): Recipe[] {
  const recipe = recipes[name];
  const operand = operandOf(recipe);
  return [
    { ...recipe, name: `${name} conventional`, softmax: conventional(operand) },
    { ...recipe, name: `${name} fused` },
    { ...recipe, name: `${name} without rollback`, softmax: fused(operand, null) },
  ];
}

function sweep(section: string, shape: HeadShape): Job[] {
  return sweepSeeds.map((seed) => ({
    kind: 'errors',
    key: section,
    inputs: { distribution: 'normal', shape, seed },
    recipes: paperPrecisions.flatMap((name) => pipelines(name).slice(0, 2)),
  }));
}

/** Everything that does not depend on a calibration. */
export function firstJobs(): Job[] {
  const jobs: Job[] = [];
  for (const seed of seeds) {
    jobs.push({
      kind: 'errors',
      key: 'papers',
      inputs: { distribution: 'normal', shape: paperShape, seed },
      recipes: paperPrecisions.flatMap((name) => pipelines(name).slice(0, 2)),
    });
    jobs.push({
      kind: 'errors',
      key: 'variants',
      inputs: { distribution: 'normal', shape: { ...paperShape, queries: 128 }, seed },
      recipes: [...variants],
    });
  }
  // The tail behind a sink gets longer with the keys: what a fixed scale of the weights makes of it.
  for (const seed of sweepSeeds) {
    jobs.push({
      kind: 'errors',
      key: 'long sink',
      inputs: { distribution: 'sink', shape: { ...paperShape, queries: 128 }, seed },
      recipes: [...pipelines('mxfp8').slice(0, 2), recipes['mxfp8-lifted']],
    });
  }
  for (const distribution of distributionNames) {
    for (const seed of seeds) {
      jobs.push({
        kind: 'errors',
        key: `stress ${distribution}`,
        inputs: { distribution, shape: distribution === 'maxstair' ? stairShape : stressShape, seed },
        recipes: paperPrecisions.flatMap(pipelines),
      });
    }
  }
  for (const keys of keyLengths) {
    jobs.push(...sweep(`keys ${keys}`, { queries: keys > 4096 ? 32 : 64, keys, size: 128 }));
  }
  for (const size of headSizes) jobs.push(...sweep(`size ${size}`, { queries: 64, keys: 1024, size }));
  for (const { distribution, temperature } of efqSettings) {
    for (const table of [false, true]) {
      jobs.push({
        kind: 'calibrate',
        key: `calibration ${distribution} ${temperature} ${table}`,
        // Seed 0 is for calibration only.
        inputs: { distribution, shape: calibrationShape, seed: 0, temperature },
        table,
      });
    }
  }
  return jobs;
}

/** EFQ-Softmax as calibrated, beside exact exponentials rounded to MXFP4; Q, K and V as they are. */
export function efqJobs(calibrations: ReadonlyMap<string, EfqCalibration>): Job[] {
  const plain = recipes.f32;
  const baseline = conventional({ format: 'e2m1', scale: 'floor' });
  return efqSettings.flatMap(({ distribution, temperature }) => {
    const calibrated = (table: boolean) =>
      efqPipeline(calibrations.get(`calibration ${distribution} ${temperature} ${table}`)!);
    return seeds.map(
      (seed): Job => ({
        kind: 'errors',
        key: `efq ${distribution} ${temperature}`,
        inputs: { distribution, shape: efqShape, seed, temperature },
        recipes: [
          { ...plain, name: 'mxfp4 weights', softmax: baseline },
          { ...plain, name: 'mxfp4 weights, exact sum', softmax: { ...baseline, sum: 'exact' } },
          { ...plain, name: 'efq', softmax: calibrated(false) },
          { ...plain, name: 'efq-lut', softmax: calibrated(true) },
        ],
      }),
    );
  });
}
