import type { ScheduleJson } from '@mxattn/core';

/** A way to run a model. */
export interface Variant {
  readonly name: 'stock' | 'schedule' | 'mxfp4';
  readonly title: string;
  /** Null: ONNX Runtime's own attention. */
  readonly schedule: ScheduleJson | null;
}

/** Options of `patch` and `createSession`. */
export function sessionOptions({ schedule }: Variant): { schedule: ScheduleJson } | { backend: 'stock' } {
  return schedule ? { schedule } : { backend: 'stock' };
}
