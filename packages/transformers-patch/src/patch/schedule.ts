import { MxattnError, schedule } from '@mxattn/core';
import type { MxattnSessionOptions } from '@mxattn/ort-op';

/**
 * Checks what a patch is asked for.
 *
 * @param createSession Where the function is that runs diffusion models.
 * @throws MxattnError for an unknown precision or a schedule that depends on a denoising step.
 */
export function checkSchedule(
  { precision, schedule: plan }: Pick<MxattnSessionOptions, 'precision' | 'schedule'>,
  createSession: string,
): void {
  if (precision !== undefined && plan !== undefined) {
    throw new MxattnError('patch: give either precision or schedule, not both');
  }
  if (schedule(plan ?? precision ?? 'f32').needsStep) {
    throw new MxattnError(
      'patch: this schedule depends on the denoising step, and transformers.js has no denoising loop; ' +
        `use rules by layer, phase or token, or createSession of ${createSession} for a diffusion model`,
    );
  }
}
