import { MxattnError, type Phase } from '@mxattn/core';
import type { InferenceSession, Tensor } from 'onnxruntime-common';

/** Options of one run: ONNX Runtime's own and where the run stands in a schedule. */
export interface MxattnRunOptions extends InferenceSession.RunOptions {
  /** Step of the sampler, from 0. Needed by schedules that depend on it. */
  readonly step?: number;
  /** Number of steps; default the schedule's own. */
  readonly steps?: number;
  /** Default: `decode` when a cache with tokens in it is fed, else `prefill`. */
  readonly phase?: Phase;
}

/** What to fetch: names, or an object whose tensors receive the outputs (null: a fresh tensor). */
export type Fetches = InferenceSession.FetchesType;

/** The arguments of a call `run(feeds, fetches?, options?)` or `run(feeds, options?)`, told apart. */
export function runArguments(
  outputNames: readonly string[],
  first: Fetches | MxattnRunOptions | undefined,
  second: MxattnRunOptions | undefined,
): { names: readonly string[]; targets: ReadonlyMap<string, Tensor>; options: MxattnRunOptions } {
  const targets = new Map<string, Tensor>();
  if (Array.isArray(first)) {
    for (const name of first) checkOutput(outputNames, name);
    return { names: first as readonly string[], targets, options: second ?? {} };
  }
  const isFetches =
    first && (second !== undefined || Object.keys(first).some((key) => outputNames.includes(key)));
  if (!isFetches)
    return { names: outputNames, targets, options: (first as MxattnRunOptions | undefined) ?? {} };
  for (const [name, target] of Object.entries(first as Record<string, Tensor | null>)) {
    checkOutput(outputNames, name);
    if (target) targets.set(name, target);
  }
  return { names: Object.keys(first), targets, options: second ?? {} };
}

function checkOutput(outputNames: readonly string[], name: string): void {
  if (!outputNames.includes(name)) {
    throw new MxattnError(`the model has no output "${name}"; its outputs are ${outputNames.join(', ')}`);
  }
}
