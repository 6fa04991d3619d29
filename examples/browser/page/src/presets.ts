import { type PrecisionName, type ScheduleJson, schedule, segments } from '@mxattn/core';

/** What the schedule's cells are. */
export type Unit = 'step' | 'layer';

/** Precisions that a click goes through. */
export const CHOICES = ['f32', 'mxfp6', 'mxfp4'] as const satisfies readonly PrecisionName[];

/** The cells of a preset: a precision throughout, or the paper's hybrid with three of 20 steps, or one layer, at each end. */
export function presetCells(preset: string, unit: Unit, count: number): PrecisionName[] {
  const edge = unit === 'layer' ? 1 : Math.max(1, Math.round((count * 3) / 20));
  return Array.from({ length: count }, (_, i) => {
    if (preset !== 'hybrid') return schedule(preset).default;
    return i < edge || i >= count - edge ? 'mxfp6' : 'mxfp4';
  });
}

/** The same schedule over another number of cells. */
export function stretch(cells: readonly PrecisionName[], count: number): PrecisionName[] {
  return Array.from({ length: count }, (_, i) => cells[Math.floor((i * cells.length) / count)]!);
}

/** `3:mxfp6/14:mxfp4/3:mxfp6` */
export function toText(cells: readonly PrecisionName[]): string {
  return segments(cells)
    .map(({ count, precision }) => `${count}:${precision}`)
    .join('/');
}

/**
 * Cells from their text.
 *
 * @throws MxattnError for what is no schedule, Error for one of another length.
 */
export function fromText(text: string, unit: Unit, count: number): PrecisionName[] {
  const plan = schedule(text);
  if (plan.steps !== null && plan.steps !== count) {
    throw new Error(`the schedule "${text}" has ${plan.steps} ${unit}s, but there are ${count}`);
  }
  return Array.from({ length: count }, (_, step) => plan.precisionAt({ step, steps: count }));
}

/** The schedule as sessions take it. */
export function toSchedule(cells: readonly PrecisionName[], unit: Unit): ScheduleJson {
  const [first, ...others] = segments(cells);
  if (!first) throw new Error('the schedule is empty');
  return {
    default: first.precision,
    ...(unit === 'step' ? { steps: cells.length } : {}),
    rules: others.map((run) => ({
      [`${unit}s`]: [run.first, run.first + run.count - 1],
      precision: run.precision,
    })),
  };
}
