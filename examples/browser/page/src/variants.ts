import type { ScheduleJson } from '@mxattn/core';
import type { Environment } from './environment.js';

/** A way to run a model. */
export interface Variant {
  readonly name: 'stock' | 'schedule' | 'mxfp4';
  readonly title: string;
  /** Null: ONNX Runtime's own attention. */
  readonly schedule: ScheduleJson | null;
}

/** Options of `patch` and `createSession`. */
export function sessionOptions(
  { schedule }: Variant,
  device: Environment['device'],
): { schedule: ScheduleJson; backend?: 'split' } | { backend: 'stock' } {
  if (!schedule) return { backend: 'stock' };
  return device === 'wasm' ? { schedule, backend: 'split' } : { schedule };
}
