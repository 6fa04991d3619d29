import { MxattnError } from '../errors.js';
import { powerOfTwo } from '../formats/bits.js';
import { elementFormats } from '../formats/element.js';
import { BLOCK_SIZE } from '../formats/view.js';
import { KEY_TILE } from '../precision/recipes.js';
import { conventional, efq, type SoftmaxPipeline } from '../softmax/pipeline.js';
import { rowSoftmax } from '../softmax/row.js';
import type { ScoreSample } from './sample.js';

/** Calibrated parameters of EFQ-Softmax; plain JSON. */
export interface EfqCalibration {
  readonly method: 'efq';
  /** First threshold of the residual, in log2 units. */
  readonly tau: number;
  /** Distance between thresholds, in log2 units. */
  readonly step: number;
  /** E2M1 code of each index, for EFQ-LUT. */
  readonly table?: readonly number[];
  /** ||o - o_ref|| / ||o_ref|| over the samples. */
  readonly error: number;
  /** The same for exact exponentials rounded to MXFP4, summed after rounding. */
  readonly baseline: number;
  /** Rows of scores that it was calibrated on. */
  readonly rows: number;
}

/** How {@link calibrate} searches. */
export interface CalibrationOptions {
  /** Also look for the table of EFQ-LUT; default false. */
  readonly table?: boolean;
  /** Called with the share of the work that is done, 0 to 1. */
  readonly onProgress?: (done: number) => void;
}

const CODES = 8;
const TABLE_SIZE = 16;
const E2M1 = elementFormats.e2m1.values;

interface Grid {
  readonly tau: readonly [least: number, most: number];
  readonly step: readonly [least: number, most: number];
  readonly points: readonly [tau: number, step: number];
}

// Codes 1..7 span about four octaves below the block maximum: eight levels are about half an octave wide,
// sixteen a quarter.
const GRIDS: Readonly<Record<'affine' | 'table', Grid>> = {
  affine: { tau: [-3.2, -1.2], step: [0.3, 0.9], points: [11, 9] },
  table: { tau: [-3.8, -1.8], step: [0.25, 0.65], points: [9, 7] },
};
const REFINEMENTS = 4;

/**
 * Finds the parameters of EFQ-Softmax that minimise the error of the attention output over samples
 * (arXiv 2609.09721, offline calibration): a grid over tau and step, refined four times; for EFQ-LUT, at each
 * point a descent over the entries of the table. Deterministic.
 *
 * @param samples score blocks, captured ({@link scoreSamples}) or synthetic.
 * @throws MxattnError if there is no row with a key.
 */
export function calibrate(samples: readonly ScoreSample[], options: CalibrationOptions = {}): EfqCalibration {
  const { table: wantsTable = false, onProgress } = options;
  const prepared = samples.map(prepare).filter(({ norm }) => norm > 0);
  if (prepared.length === 0) throw new MxattnError('EFQ calibration: no sample has a row with a visible key');
  const norm = Math.sqrt(prepared.reduce((sum, sample) => sum + sample.norm, 0));

  const levels = wantsTable ? TABLE_SIZE : CODES;
  const grid = GRIDS[wantsTable ? 'table' : 'affine'];
  let best: Candidate | null = null;
  let { tau, step } = { tau: middle(grid.tau), step: middle(grid.step) };
  let spans = { tau: grid.tau[1] - grid.tau[0], step: grid.step[1] - grid.step[0] };
  const rounds = REFINEMENTS + 1;
  for (let round = 0; round < rounds; round++) {
    const points: readonly [number, number] = round === 0 ? grid.points : [3, 3];
    const taus = spread(tau, spans.tau, points[0]);
    const steps = spread(step, spans.step, points[1]);
    const tried = taus.flatMap((tau) => steps.map((step) => ({ tau, step })));
    for (const [i, point] of tried.entries()) {
      const bins = prepared.map((sample) => accumulate(sample, point.tau, point.step, levels));
      const table = wantsTable ? descend(prepared, bins, nearestCodes(point.tau, point.step)) : identity();
      const error = squaredError(prepared, bins, table);
      if (!best || error < best.error) best = { ...point, table, error };
      onProgress?.((round + (i + 1) / tried.length) / rounds);
    }
    ({ tau, step } = best!);
    // The next round looks between the neighbours of the best point.
    spans = { tau: spans.tau / (points[0] - 1), step: spans.step / (points[1] - 1) };
  }

  const { table, error } = best!;
  return {
    method: 'efq',
    tau: best!.tau,
    step: best!.step,
    ...(wantsTable ? { table } : {}),
    error: Math.sqrt(error) / norm,
    baseline: Math.sqrt(pipelineError(prepared, conventional({ format: 'e2m1', scale: 'floor' }))) / norm,
    rows: samples.reduce((sum, { rows }) => sum + rows, 0),
  };
}

/**
 * The softmax pipeline of a calibration, for instance one read from a file.
 *
 * @throws MxattnError naming the part that is wrong.
 */
export function efqPipeline(calibration: EfqCalibration): SoftmaxPipeline {
  const { method, tau, step, table } = calibration;
  if (method !== 'efq')
    throw new MxattnError(`EFQ calibration: method is ${JSON.stringify(method)}, not "efq"`);
  if (!Number.isFinite(tau)) throw new MxattnError(`EFQ calibration: tau is ${tau}`);
  if (!(step > 0 && step < Infinity))
    throw new MxattnError(`EFQ calibration: step is ${step}, must be above 0`);
  if (table) {
    const bad = table.findIndex((code) => !Number.isInteger(code) || code < 0 || code >= CODES);
    if (table.length === 0 || bad >= 0) {
      throw new MxattnError(`EFQ calibration: table[${Math.max(bad, 0)}] is ${table[bad]}, expected 0 to 7`);
    }
  }
  return efq(tau, step, table);
}

interface Candidate {
  tau: number;
  step: number;
  table: number[];
  /** Sum over all outputs of (o - o_ref)^2. */
  error: number;
}

interface Prepared extends ScoreSample {
  /** Exact outputs, [rows][channels]. */
  readonly reference: Float64Array;
  /** Sum of their squares. */
  readonly norm: number;
}

/** Per row and level: the scaled values that fall on the level, and the sum of their scales. */
interface Bins {
  readonly values: Float64Array;
  readonly scales: Float64Array;
}

function middle([least, most]: readonly [number, number]): number {
  return (least + most) / 2;
}

function spread(centre: number, span: number, points: number): number[] {
  return Array.from({ length: points }, (_, i) => centre + span * (i / (points - 1) - 0.5));
}

function identity(): number[] {
  return Array.from({ length: CODES }, (_, code) => code);
}

function outputs(sample: ScoreSample, pipeline: SoftmaxPipeline): Float64Array {
  const { scores, rows, keys, values, channels } = sample;
  const softmax = rowSoftmax(pipeline, KEY_TILE, channels);
  const all = new Float64Array(rows * channels);
  for (let row = 0; row < rows; row++) {
    const out = all.subarray(row * channels, (row + 1) * channels);
    softmax.run(scores.subarray(row * keys, (row + 1) * keys), 0, keys, values, -Infinity, out);
  }
  return all;
}

function prepare(sample: ScoreSample): Prepared {
  const reference = outputs(sample, conventional(null));
  return { ...sample, reference, norm: reference.reduce((sum, x) => sum + x * x, 0) };
}

function pipelineError(samples: readonly Prepared[], pipeline: SoftmaxPipeline): number {
  let error = 0;
  for (const sample of samples) {
    outputs(sample, pipeline).forEach((x, i) => {
      error += (x - sample.reference[i]!) ** 2;
    });
  }
  return error;
}

/**
 * Sorts the keys of every row by their level floor((x - e - tau) / step). The output of any table is then a
 * combination of `levels` sums instead of all keys: a table costs next to nothing to try.
 */
function accumulate(sample: ScoreSample, tau: number, step: number, levels: number): Bins {
  const { scores, rows, keys, values, channels } = sample;
  const bins = {
    values: new Float64Array(rows * levels * channels),
    scales: new Float64Array(rows * levels),
  };
  for (let row = 0; row < rows; row++) {
    const rowScores = scores.subarray(row * keys, (row + 1) * keys);
    const rowValues = bins.values.subarray(row * levels * channels, (row + 1) * levels * channels);
    const rowScales = bins.scales.subarray(row * levels, (row + 1) * levels);
    let reference = -Infinity;
    for (let first = 0; first < keys; first += BLOCK_SIZE) {
      const end = Math.min(first + BLOCK_SIZE, keys);
      if (first % KEY_TILE === 0) {
        const tile = rowScores.subarray(first, Math.min(first + KEY_TILE, keys));
        const raised = tile.reduce((max, s) => Math.max(max, s), reference);
        if (raised > reference && reference > -Infinity) {
          const rescale = 2 ** (reference - raised);
          for (let i = 0; i < rowValues.length; i++) rowValues[i] = rowValues[i]! * rescale;
          for (let i = 0; i < levels; i++) rowScales[i] = rowScales[i]! * rescale;
        }
        reference = raised;
      }
      let max = -Infinity;
      for (let j = first; j < end; j++) max = Math.max(max, rowScores[j]!);
      if (max === -Infinity) continue;
      const exponent = Math.max(Math.floor(max - reference) - 2, -127);
      const scale = powerOfTwo(exponent);
      for (let j = first; j < end; j++) {
        const index = Math.floor((rowScores[j]! - reference - exponent - tau) / step);
        const level = Math.min(Math.max(index, 0), levels - 1);
        rowScales[level] = rowScales[level]! + scale;
        const from = j * channels;
        const to = level * channels;
        for (let c = 0; c < channels; c++) rowValues[to + c] = rowValues[to + c]! + scale * values[from + c]!;
      }
    }
  }
  return bins;
}

function squaredError(samples: readonly Prepared[], bins: readonly Bins[], table: readonly number[]): number {
  let error = 0;
  const levels = table.length;
  samples.forEach(({ rows, channels, reference }, s) => {
    const { values, scales } = bins[s]!;
    for (let row = 0; row < rows; row++) {
      let sum = 0;
      for (let level = 0; level < levels; level++)
        sum += E2M1[table[level]!]! * scales[row * levels + level]!;
      for (let c = 0; c < channels; c++) {
        let out = 0;
        for (let level = 0; level < levels; level++) {
          out += E2M1[table[level]!]! * values[(row * levels + level) * channels + c]!;
        }
        // A row without a weight gives zeros.
        const difference = (sum > 0 ? out / sum : 0) - reference[row * channels + c]!;
        error += difference * difference;
      }
    }
  });
  return error;
}

/** The table that rounds 2^residual, at the middle of each level, to the nearest code. */
function nearestCodes(tau: number, step: number): number[] {
  return Array.from({ length: TABLE_SIZE }, (_, level) => {
    const value = 2 ** (tau + (level + 0.5) * step);
    let nearest = 0;
    for (let code = 1; code < CODES; code++) {
      if (Math.abs(E2M1[code]! - value) < Math.abs(E2M1[nearest]! - value)) nearest = code;
    }
    return nearest;
  });
}

/** Moves single entries of a monotone table up or down for as long as this lowers the error. */
function descend(samples: readonly Prepared[], bins: readonly Bins[], start: readonly number[]): number[] {
  const table = [...start];
  let error = squaredError(samples, bins, table);
  for (let improved = true; improved; ) {
    improved = false;
    for (let level = 0; level < table.length; level++) {
      for (const change of [-1, 1]) {
        const code = table[level]! + change;
        if (code < (table[level - 1] ?? 0) || code > (table[level + 1] ?? CODES - 1)) continue;
        const before = table[level]!;
        table[level] = code;
        const changed = squaredError(samples, bins, table);
        if (changed < error) {
          error = changed;
          improved = true;
        } else {
          table[level] = before;
        }
      }
    }
  }
  return table;
}
