import { findRuntime } from '../session/runtime.js';
import { addon, type NativeSession, type NativeSessionOptions } from './addon.js';

/**
 * A session of the addon on a model as it is: no attention is looked for, inputs are not checked. For benchmarks and
 * tests of single operators; {@link createSession} is for everything else.
 */
export function openNativeSession(
  model: Uint8Array,
  options: NativeSessionOptions = {},
): Promise<NativeSession> {
  return addon().createSession(findRuntime().libraryPath, model, options);
}

/**
 * The most this machine can multiply and add in registers, in 10^9 operations a second (a multiply-add is two): f32
 * vectors, and int8 products as the fastest build of the kernel forms them. Takes half a second.
 */
export function measurePeaks(threads: number): Promise<{ readonly float32: number; readonly int8: number }> {
  return addon().measurePeaks(threads);
}
