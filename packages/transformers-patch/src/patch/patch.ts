import { createRequire } from 'node:module';
import { MxattnError } from '@mxattn/core';
import { createSession, findRuntime, type MxattnSessionOptions } from '@mxattn/ort-op';
import type { InferenceSession } from 'onnxruntime-common';
import { modelArguments } from './arguments.js';
import type { ModelReport } from './report.js';
import { checkSchedule } from './schedule.js';

/** How patched models run. Give a precision or a schedule by layer or phase, not both. */
export interface PatchOptions
  extends Pick<
    MxattnSessionOptions,
    | 'precision'
    | 'schedule'
    | 'backend'
    | 'device'
    | 'crossAttention'
    | 'kvCache'
    | 'kvCacheFormat'
    | 'threads'
    | 'isa'
  > {
  /**
   * The module (file URL or path) whose @huggingface/transformers is patched; default: the one this package
   * finds, which is the application's own in a usual installation.
   */
  readonly from?: string | URL;
}

type Create = typeof InferenceSession.create;
type SessionClass = { create: Create };

interface Patched {
  readonly target: SessionClass;
  readonly original: Create;
}

let patched: Patched | undefined;
const reports: ModelReport[] = [];

/**
 * Makes transformers.js use mxattn's attention in every model loaded from now on, whether it was imported before
 * or is imported later. Models loaded before stay as they are. A second call replaces the options of the first.
 *
 * @throws MxattnError for an unknown precision, a schedule that depends on a denoising step, or when
 * @huggingface/transformers is not installed.
 */
export function patch(options: PatchOptions = {}): void {
  const { from = import.meta.url, ...session } = options;
  checkSchedule(session, '@mxattn/ort-op');
  const transformers = resolveTransformers(from);
  const target = findRuntime(transformers).ort.InferenceSession as unknown as SessionClass;
  unpatch();
  const original = target.create;
  patched = { target, original };
  const create = async (...args: unknown[]) => {
    const { model, options } = modelArguments(args);
    const created = await createSession(model, { ...options, ...session, runtime: transformers }, original);
    const name = typeof model === 'string' ? model : `${model.byteLength} bytes`;
    reports.push({ model: name, ...created.report });
    return created;
  };
  target.create = create as Create;
}

/** Models loaded from now on run as without mxattn. Does nothing when nothing is patched. */
export function unpatch(): void {
  if (patched) patched.target.create = patched.original;
  patched = undefined;
}

/** What was replaced, what was left and why, for every model loaded since the process started patching. */
export function patchReport(): readonly ModelReport[] {
  return [...reports];
}

function resolveTransformers(from: string | URL): string {
  try {
    return createRequire(from).resolve('@huggingface/transformers');
  } catch (error) {
    throw new MxattnError(`@huggingface/transformers is not installed where ${from} could load it`, {
      cause: error,
    });
  }
}
