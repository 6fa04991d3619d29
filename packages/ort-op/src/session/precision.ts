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

/**
 * The formats of native caches by layer: what it decodes with, after the first tokens.
 *
 * @returns Precision ids; undefined where a layer is exact in one run and quantised in another, or changes by step, so
 * that no one format serves.
 */
export function cacheFormats(plan: Schedule, layers: number): number[] | undefined {
  if (plan.needsStep) return undefined;
  // Where some rule begins or ends to hold, and so all places in the sequence that may differ.
  const tokens = [
    0,
    ...plan.rules.flatMap((rule) => (rule.tokens ? [rule.tokens[0], rule.tokens[1] + 1] : [])),
  ];
  const latest = Math.max(...tokens);
  const formats: number[] = [];
  for (let layer = 0; layer < layers; layer++) {
    const exact = (['prefill', 'decode'] as const).flatMap((phase) =>
      tokens.map((token) => plan.precisionAt({ layer, layers, phase, token }) === 'f32'),
    );
    if (new Set(exact).size > 1) return undefined;
    formats.push(precision(plan.precisionAt({ layer, layers, phase: 'decode', token: latest })).id);
  }
  return formats;
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
