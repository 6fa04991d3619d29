import { MxattnError } from '@mxattn/core';
import { addon, type GpuFacts } from '../native/addon.js';
import type { KvCacheFormat } from './cache-format.js';

/**
 * Where attention is computed; everything else is always on the processor.
 *
 * - `cpu`: there, too.
 * - `gpu`: on the first GPU of `listGpus()`, or that of an index; an error where it cannot be.
 * - `auto`: on the first GPU where there is one, and on the processor what it cannot do; announced once.
 */
export type SessionDevice = 'cpu' | 'gpu' | 'auto' | { readonly gpu: number };

/** The GPU that a session is to use. */
export interface ChosenGpu {
  readonly index: number;
  readonly required: boolean;
  readonly facts: GpuFacts;
}

/** Whether a session on anything but a GPU would be an error. */
export function requiresGpu(device: SessionDevice): boolean {
  return device !== 'cpu' && device !== 'auto';
}

/**
 * The GPU for a session, or why there is none though one was wanted, or neither.
 *
 * @throws MxattnError for a device that is not known, and for a required GPU that is missing or cannot hold the cache.
 */
export function chooseGpu(
  device: SessionDevice,
  cacheFormat: KvCacheFormat | undefined,
): { readonly gpu?: ChosenGpu; readonly missing?: string } {
  if (device === 'cpu') return {};
  const index = typeof device === 'object' ? device.gpu : 0;
  if (!(typeof device === 'object' || device === 'gpu' || device === 'auto') || !isIndex(index)) {
    throw new MxattnError(
      `unknown device ${JSON.stringify(device)}; there are "cpu", "gpu", "auto" and { gpu: index }`,
    );
  }
  const { gpus, why } = addon().listGpus();
  const facts = gpus[index];
  const onHost = facts && cacheFormat === 'f16';
  if (facts && !onHost) return { gpu: { index, required: requiresGpu(device), facts } };
  const missing = onHost
    ? 'a cache of kvCacheFormat f16 is for the processor; choose another'
    : gpus.length === 0
      ? `there is no GPU to use. ${why}`
      : `there is no GPU ${index}; the last is GPU ${gpus.length - 1}`;
  if (requiresGpu(device)) throw new MxattnError(missing);
  return { missing };
}

function isIndex(value: unknown): boolean {
  return Number.isInteger(value) && (value as number) >= 0;
}

/** As reports name it. */
export function describeGpu({ name, architecture, driver }: GpuFacts): string {
  return `${name} (${architecture}, ${driver})`;
}
