import { MxattnError, type Phase, precision, type Schedule, schedule } from '@mxattn/core';
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
  { step, steps, phase = phaseOf(feeds) }: MxattnRunOptions,
): Int32Array {
  const ids = new Int32Array(layers);
  for (let layer = 0; layer < layers; layer++) {
    const name = plan.precisionAt({
      layer,
      layers,
      phase,
      ...(step === undefined ? {} : { step }),
      ...(steps === undefined ? {} : { steps }),
    });
    ids[layer] = precision(name).id;
  }
  return ids;
}

/**
 * The formats of native caches by layer: that of decoding.
 *
 * @returns Precision ids; undefined where a layer is exact in one phase and quantised in the other, or changes by step, so
 * that no one format serves.
 */
export function cacheFormats(plan: Schedule, layers: number): number[] | undefined {
  if (plan.needsStep) return undefined;
  const formats: number[] = [];
  for (let layer = 0; layer < layers; layer++) {
    const at = (phase: Phase) => plan.precisionAt({ layer, layers, phase });
    const [prefill, decode] = [at('prefill'), at('decode')];
    if ((prefill === 'f32') !== (decode === 'f32')) return undefined;
    formats.push(precision(decode).id);
  }
  return formats;
}

/** A cache is a pair of inputs named past...; its sequence is the last but one axis. */
function phaseOf(feeds: Feeds): Phase {
  const decoding = Object.entries(feeds).some(
    ([name, tensor]) => /^past/.test(name) && (tensor.dims.at(-2) ?? 0) > 0,
  );
  return decoding ? 'decode' : 'prefill';
}
