import type { EfqCalibration } from '@mxattn/core';
import { distributionNames } from './distributions.js';
import type { JobResult, Measurement } from './experiment.js';
import { type LateKey, lateKeys } from './late-key.js';
import {
  efqSettings,
  efqShape,
  headSizes,
  keyLengths,
  type PaperPrecision,
  paperPrecisions,
  paperShape,
  published,
  seeds,
  stairShape,
  stressShape,
  variants,
} from './plan.js';

/** A relative error in percent over the seeds. */
export interface ErrorSummary {
  mean: number;
  least: number;
  most: number;
}

/** Conventional and fused softmax on the same operands. */
export interface Pair {
  conventional: ErrorSummary;
  fused: ErrorSummary;
  /** Difference of the means, in percentage points. */
  added: number;
}

/** Fused-Softmax under stress. */
export interface StressRow extends Pair {
  withoutRollback: ErrorSummary;
  rollbacksPerRow: number;
  /** Clipped weights per row when there is no rollback. */
  saturationsPerRow: number;
  finite: boolean;
}

/** A hard requirement and whether it holds. */
export interface Check {
  name: string;
  value: number | boolean;
  expected: string;
  ok: boolean;
}

/** Everything that `npm run table` measures. */
export interface Table {
  settings: { seeds: number[]; papers: object; stress: object; maxstair: object; efq: object };
  papers: Record<PaperPrecision, Pair & { published: number }>;
  variants: Record<string, ErrorSummary>;
  stress: Record<string, Record<PaperPrecision, StressRow>>;
  longSink: Record<string, ErrorSummary>;
  lateKey: LateKey[];
  efq: {
    distribution: string;
    temperature: number;
    errors: Record<string, ErrorSummary>;
    affine: EfqCalibration;
    table: EfqCalibration;
  }[];
  keys: { keys: number; errors: Record<PaperPrecision, Pair> }[];
  headSize: { size: number; errors: Record<PaperPrecision, Pair> }[];
  checks: Check[];
}

/** Collects the results of all jobs. */
export function summarize(results: readonly JobResult[]): Table {
  const measured = new Map<string, Measurement[]>();
  const calibrations = new Map<string, EfqCalibration>();
  for (const result of results) {
    if (result.kind === 'calibrate') calibrations.set(result.key, result.calibration);
    else measured.set(result.key, [...(measured.get(result.key) ?? []), ...result.measurements]);
  }
  const of = (key: string, recipe: string) =>
    measured.get(key)!.filter((measurement) => measurement.recipe === recipe);
  const errors = (key: string, recipe: string): ErrorSummary => {
    const percents = of(key, recipe).map(({ percent }) => percent);
    return {
      mean: percents.reduce((a, b) => a + b, 0) / percents.length,
      least: Math.min(...percents),
      most: Math.max(...percents),
    };
  };
  const pair = (key: string, name: PaperPrecision): Pair => {
    const conventional = errors(key, `${name} conventional`);
    const fused = errors(key, `${name} fused`);
    return { conventional, fused, added: fused.mean - conventional.mean };
  };
  const perPrecision = <T>(make: (name: PaperPrecision) => T) =>
    Object.fromEntries(paperPrecisions.map((name) => [name, make(name)])) as Record<PaperPrecision, T>;

  const average = (list: readonly number[]) => list.reduce((a, b) => a + b, 0) / list.length;
  const stressRow = (key: string, name: PaperPrecision): StressRow => {
    const fused = of(key, `${name} fused`);
    return {
      ...pair(key, name),
      withoutRollback: errors(key, `${name} without rollback`),
      rollbacksPerRow: average(fused.map(({ rollbacks }) => rollbacks)),
      saturationsPerRow: average(of(key, `${name} without rollback`).map(({ saturations }) => saturations)),
      finite: fused.every(({ finite }) => finite),
    };
  };

  const table: Omit<Table, 'checks'> = {
    settings: { seeds, papers: paperShape, stress: stressShape, maxstair: stairShape, efq: efqShape },
    papers: perPrecision((name) => ({ ...pair('papers', name), published: published[name] })),
    variants: Object.fromEntries(variants.map(({ name }) => [name, errors('variants', name)])),
    stress: Object.fromEntries(
      distributionNames.map((name) => [
        name,
        perPrecision((precision) => stressRow(`stress ${name}`, precision)),
      ]),
    ),
    longSink: Object.fromEntries(
      ['mxfp8 conventional', 'mxfp8 fused', 'mxfp8-lifted'].map((name) => [name, errors('long sink', name)]),
    ),
    lateKey: lateKeys(),
    efq: efqSettings.map(({ distribution, temperature }) => {
      const key = `efq ${distribution} ${temperature}`;
      const names = ['mxfp4 weights', 'mxfp4 weights, exact sum', 'efq', 'efq-lut'];
      return {
        distribution,
        temperature,
        errors: Object.fromEntries(names.map((name) => [name, errors(key, name)])),
        affine: calibrations.get(`calibration ${distribution} ${temperature} false`)!,
        table: calibrations.get(`calibration ${distribution} ${temperature} true`)!,
      };
    }),
    keys: keyLengths.map((keys) => ({ keys, errors: perPrecision((name) => pair(`keys ${keys}`, name)) })),
    headSize: headSizes.map((size) => ({
      size,
      errors: perPrecision((name) => pair(`size ${size}`, name)),
    })),
  };
  return { ...table, checks: checks(table) };
}

/** Bounds of the complete pipeline's error, in percent, around the published values. */
const bounds: Record<PaperPrecision, [number, number]> = {
  mxfp8: [5.6, 5.8],
  mxfp6: [6.3, 6.6],
  mxfp4: [20.3, 20.8],
};
const MOST_ADDED = 0.35;
const MOST_STRESS_DIFFERENCE = 0.6;

function checks(table: Omit<Table, 'checks'>): Check[] {
  const list: Check[] = [];
  for (const name of paperPrecisions) {
    const { fused, added } = table.papers[name];
    const [least, most] = bounds[name];
    list.push({
      name: `${name} error`,
      value: fused.mean,
      expected: `${least} to ${most} %`,
      ok: fused.mean >= least && fused.mean <= most,
    });
    list.push({
      name: `${name} added by Fused-Softmax`,
      value: added,
      expected: `<= ${MOST_ADDED} points`,
      ok: added <= MOST_ADDED,
    });
  }
  for (const [distribution, row] of Object.entries(table.stress)) {
    for (const name of paperPrecisions) {
      const { added, finite } = row[name];
      list.push({
        name: `${name} on ${distribution}: distance from conventional`,
        value: added,
        expected: `within ${MOST_STRESS_DIFFERENCE} points`,
        ok: Math.abs(added) <= MOST_STRESS_DIFFERENCE,
      });
      list.push({ name: `${name} on ${distribution}: finite`, value: finite, expected: 'true', ok: finite });
    }
  }
  return list;
}
