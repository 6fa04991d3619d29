import {
  attentionSpec,
  attentionTrace,
  calibrate,
  type EfqCalibration,
  emulateAttention,
  type Recipe,
  referenceAttention,
  scoreSamples,
} from '@mxattn/core';
import { type DistributionName, type HeadShape, makeHead } from './distributions.js';

/** Inputs of one measurement. */
export interface Inputs {
  distribution: DistributionName;
  shape: HeadShape;
  seed: number;
  temperature?: number;
}

/** Something that a worker computes. */
export type Job =
  | { kind: 'errors'; key: string; inputs: Inputs; recipes: Recipe[] }
  | { kind: 'calibrate'; key: string; inputs: Inputs; table: boolean };

/** How far a recipe's output lies from attention in float64 on the same bfloat16 inputs. */
export interface Measurement {
  recipe: string;
  /** 100 * ||o - o_ref|| / ||o_ref|| */
  percent: number;
  finite: boolean;
  /** Mean over rows. */
  rollbacks: number;
  saturations: number;
}

/** What a job gives. */
export type JobResult =
  | { kind: 'errors'; key: string; measurements: Measurement[] }
  | { kind: 'calibrate'; key: string; calibration: EfqCalibration };

function mean(values: ArrayLike<number>): number {
  let sum = 0;
  for (let i = 0; i < values.length; i++) sum += values[i]!;
  return sum / values.length;
}

/** Runs a job. */
export function runJob(job: Job): JobResult {
  const { distribution, shape, seed, temperature } = job.inputs;
  const head = makeHead(distribution, shape, seed, temperature);
  const spec = attentionSpec({
    heads: 1,
    queryLength: shape.queries,
    keyLength: shape.keys,
    headSize: shape.size,
  });
  if (job.kind === 'calibrate') {
    const calibration = calibrate(scoreSamples(head, spec), { table: job.table });
    return { kind: 'calibrate', key: job.key, calibration };
  }
  const reference = referenceAttention(head, spec);
  const norm = reference.reduce((sum, x) => sum + x * x, 0);
  const measurements = job.recipes.map((recipe): Measurement => {
    const trace = attentionTrace(spec);
    const output = emulateAttention(head, spec, recipe, { trace });
    const difference = output.reduce((sum, x, i) => sum + (x - reference[i]!) ** 2, 0);
    return {
      recipe: recipe.name,
      percent: 100 * Math.sqrt(difference / norm),
      finite: output.every(Number.isFinite),
      rollbacks: mean(trace.rollbacks),
      saturations: mean(trace.saturations),
    };
  });
  return { kind: 'errors', key: job.key, measurements };
}
