import { MxattnError } from '../errors.js';
import { isPrecisionName, type PrecisionName, precision } from '../precision/recipes.js';
import { type IndexRange, Schedule, type ScheduleJson, type ScheduleRule, segments } from './schedule.js';

/**
 * A schedule from any of its forms: JSON (an object or its text), a precision's name, or segments of steps such
 * as `3:mxfp6/14:mxfp4/3:mxfp6`.
 *
 * @throws MxattnError naming the bad part.
 */
export function schedule(form: ScheduleJson | string | Schedule): Schedule {
  if (form instanceof Schedule) return form;
  if (typeof form !== 'string') return new Schedule(form);
  const text = form.trim();
  if (text.startsWith('{')) return new Schedule(parseJson(text));
  if (!text.includes(':')) {
    precision(text);
    return constant(text as PrecisionName);
  }
  return perStep(text.split('/').flatMap((part) => parseSegment(part, text)));
}

function parseJson(text: string): ScheduleJson {
  try {
    return JSON.parse(text) as ScheduleJson;
  } catch (error) {
    throw new MxattnError(`schedule: not valid JSON: ${(error as Error).message}`);
  }
}

/** Steps that one schedule may have: far more than any sampler takes. */
const MOST_STEPS = 100_000;

function parseSegment(part: string, text: string): PrecisionName[] {
  const match = /^\s*(\d+)\s*:\s*([^\s:]+)\s*$/.exec(part);
  const count = Number(match?.[1]);
  const name = match?.[2] ?? '';
  if (!match || count < 1 || count > MOST_STEPS) {
    throw new MxattnError(`schedule "${text}": "${part}" is no segment such as 3:mxfp6`);
  }
  if (!isPrecisionName(name)) {
    throw new MxattnError(`schedule "${text}": "${name}" in "${part}" is no precision`);
  }
  return new Array<PrecisionName>(count).fill(name);
}

/** One precision everywhere. */
export function constant(name: PrecisionName): Schedule {
  return new Schedule({ default: name });
}

/** A schedule from the precision of every step. */
export function perStep(precisions: readonly PrecisionName[]): Schedule {
  const runs = segments(precisions);
  if (runs.length === 0) throw new MxattnError('schedule: there must be at least one step');
  // The longest run becomes the default, so that the rules name the exceptions.
  const longest = runs.reduce((a, b) => (b.count > a.count ? b : a)).precision;
  const rules = runs
    .filter((run) => run.precision !== longest)
    .map(({ first, count, precision }): ScheduleRule => ({ steps: [first, first + count - 1], precision }));
  return new Schedule({ default: longest, steps: precisions.length, rules });
}

function edgeRanges(edge: number): IndexRange[] {
  if (!Number.isInteger(edge) || edge < 0) {
    throw new MxattnError(`schedule: edge is ${edge}, expected an integer >= 0`);
  }
  if (edge === 0) return [];
  return [
    [0, edge - 1],
    [-edge, -1],
  ];
}

/**
 * The hybrid schedule of Fused-Softmax Attention: the first and last `edge` of `steps` denoising steps at one
 * precision, the steps between at another.
 */
export function hybrid(options: {
  steps: number;
  edge: number;
  edges: PrecisionName;
  middle: PrecisionName;
}): Schedule {
  const { steps, edge, edges, middle } = options;
  const rules = edgeRanges(edge).map((range): ScheduleRule => ({ steps: range, precision: edges }));
  return new Schedule({ default: middle, steps, rules });
}

/** The first and last `edge` layers at one precision, the layers between at another. */
export function hybridLayers(options: {
  edge: number;
  edges: PrecisionName;
  middle: PrecisionName;
}): Schedule {
  const { edge, edges, middle } = options;
  const rules = edgeRanges(edge).map((range): ScheduleRule => ({ layers: range, precision: edges }));
  return new Schedule({ default: middle, rules });
}

/**
 * A schedule over a sampler's timesteps, such as [999, 949, ..., 49]: every step takes the precision of the first
 * range that its timestep lies in, ends included, else the default.
 */
export function fromTimesteps(
  timesteps: readonly number[],
  options: {
    default: PrecisionName;
    ranges: readonly { from: number; to: number; precision: PrecisionName }[];
  },
): Schedule {
  return perStep(
    timesteps.map((timestep) => {
      if (!Number.isFinite(timestep)) throw new MxattnError(`schedule: timestep ${timestep} is no number`);
      const range = options.ranges.find(
        ({ from, to }) => timestep >= Math.min(from, to) && timestep <= Math.max(from, to),
      );
      return range?.precision ?? options.default;
    }),
  );
}
