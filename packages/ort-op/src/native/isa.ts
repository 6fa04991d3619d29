import { MxattnError } from '@mxattn/core';
import { addon } from './addon.js';

/** The builds of the CPU kernel this processor can run, fastest first, e.g. `avx512-vnni`, `avx2`, `portable`. */
export function isaLevels(): string[] {
  return addon().isaLevels();
}

/** Whether the native addon is there, and what it can do. */
export function addonStatus(): { readonly isaLevels?: readonly string[]; readonly error?: string } {
  try {
    return { isaLevels: isaLevels() };
  } catch (error) {
    return { error: (error as Error).message };
  }
}

/**
 * The build to use: the given one, else the environment variable MXATTN_ISA, else the fastest.
 *
 * @throws MxattnError for a build this processor cannot run.
 */
export function chooseIsa(isa?: string): string {
  const levels = isaLevels();
  const wanted = isa ?? process.env.MXATTN_ISA;
  if (!wanted) return levels[0]!;
  if (!levels.includes(wanted)) {
    throw new MxattnError(
      `${isa === undefined ? 'MXATTN_ISA' : 'option isa'} is "${wanted}"; this processor can run ${levels.join(', ')}`,
    );
  }
  return wanted;
}
