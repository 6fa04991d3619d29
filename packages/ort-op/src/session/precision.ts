import { MxattnError, type PrecisionName, precision, type Schedule, schedule } from '@mxattn/core';
import type { Feeds } from './feeds.js';
import type { MxattnSessionOptions } from './options.js';
import type { MxattnRunOptions } from './run-options.js';

/** The schedule a session was asked for, if it was. */
export function sessionSchedule(
  options: Pick<MxattnSessionOptions, 'precision' | 'schedule'>,
): Schedule | undefined {
  if (options.precision !== undefined && options.schedule !== undefined) {
    throw new MxattnError('give either precision or schedule, not both');
  }
  if (options.schedule !== undefined) return schedule(options.schedule);
  return options.precision === undefined ? undefined : schedule(precision(options.precision).name);
}

/** Precision ids of all layers for one run: the value of the converted model's input `mxattn.precision`. */
export function layerPrecisions(
  plan: Schedule,
  layers: number,
  feeds: Feeds,
  options: MxattnRunOptions,
): Int32Array {
  return Int32Array.from(layerPrecisionNames(plan, layers, feeds, options), (name) => precision(name).id);
}

/** The precisions of all layers for one run. */
export function layerPrecisionNames(
  plan: Schedule,
  layers: number,
  feeds: Feeds,
  { step, steps, phase }: MxattnRunOptions,
): PrecisionName[] {
  const token = cachedTokens(feeds);
  return Array.from({ length: layers }, (_, layer) =>
    plan.precisionAt({
      layer,
      layers,
      phase: phase ?? (token > 0 ? 'decode' : 'prefill'),
      token,
      ...(step === undefined ? {} : { step }),
      ...(steps === undefined ? {} : { steps }),
    }),
  );
}

/** Tokens in the cache that is fed: its inputs are named past... (.encoder. for the other one of a decoder), its sequence is the last but one axis. */
function cachedTokens(feeds: Feeds): number {
  return Math.max(
    0,
    ...Object.entries(feeds).map(([name, tensor]) =>
      /^past(?!.*\.encoder\.)/.test(name) ? (tensor.dims.at(-2) ?? 0) : 0,
    ),
  );
}
