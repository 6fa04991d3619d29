import { MxattnError, precision, type Schedule, schedule } from '@mxattn/core';

/** --precision and --schedule of the command line as one schedule. */
export function planOf(options: { precision?: string; schedule?: string }): Schedule {
  if (options.precision !== undefined && options.schedule !== undefined) {
    throw new MxattnError('give either --precision or --schedule, not both');
  }
  if (options.schedule !== undefined) return schedule(options.schedule);
  return schedule(precision(options.precision ?? 'f32').name);
}

/** A whole number option from 1. */
export function positiveOption(name: string) {
  return (text: string): number => {
    const value = Number(text);
    if (!Number.isInteger(value) || value < 1) {
      throw new MxattnError(`--${name} is "${text}", expected a whole number from 1`);
    }
    return value;
  };
}

/** A number option from 0. */
export function numberOption(name: string) {
  return (text: string): number => {
    const value = Number(text);
    if (!(value >= 0)) throw new MxattnError(`--${name} is "${text}", expected a number from 0`);
    return value;
  };
}
