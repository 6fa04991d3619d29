import { createSession, type WebSessionOptions } from '@mxattn/ort-op/web';
import type { InferenceSession } from 'onnxruntime-common';
import * as onnxruntime from 'onnxruntime-web/webgpu';
import { modelArguments } from '../patch/arguments.js';
import type { ModelReport } from '../patch/report.js';
import { checkSchedule } from '../patch/schedule.js';

/** How patched models run. Give a precision or a schedule by layer, phase or token, not both. */
export interface WebPatchOptions
  extends Pick<
    WebSessionOptions,
    'precision' | 'schedule' | 'backend' | 'crossAttention' | 'device' | 'kvCache' | 'kvCacheFormat'
  > {
  /**
   * The onnxruntime-web/webgpu module that transformers.js uses; default: the one this package imports, which is the same where
   * both are in one bundle or one import map.
   */
  readonly ort?: WebSessionOptions['ort'];
}

type Create = typeof InferenceSession.create;
type SessionClass = { create: Create };

let patched: { readonly target: SessionClass; readonly original: Create } | undefined;
const reports: ModelReport[] = [];

/**
 * Makes transformers.js in a browser use mxattn's attention in every model loaded on WebGPU from now on
 * (`device: 'webgpu'`). Models on WebAssembly are cut at their attentions if `backend: 'split'` says so, else they run as
 * without the patch: a model that makes a token at a time may take longer in parts. A second call replaces the options of
 * the first.
 *
 * @throws MxattnError for an unknown precision or a schedule that depends on a denoising step.
 */
export function patch(options: WebPatchOptions = {}): void {
  const { ort = onnxruntime as unknown as WebSessionOptions['ort'], ...ours } = options;
  checkSchedule(ours, '@mxattn/ort-op/web');
  unpatch();
  const target = ort.InferenceSession as unknown as SessionClass;
  const original = target.create;
  patched = { target, original };
  // Sessions of ours are created by the original, whatever stands in its place.
  const runtime = {
    ...ort,
    InferenceSession: { create: original.bind(target) },
  } as unknown as WebSessionOptions['ort'];
  const create = async (...args: unknown[]) => {
    const { model, options: given } = modelArguments(args);
    const name = typeof model === 'string' ? model : `${model.byteLength} bytes`;
    const executionProvider = onWebGpu(given) ? 'webgpu' : 'wasm';
    if (executionProvider === 'wasm' && ours.backend !== 'split') {
      reports.push({ model: name, backend: 'stock', reason: 'not on WebGPU', replaced: [], left: [] });
      return (original as (...args: unknown[]) => Promise<InferenceSession>).apply(target, args);
    }
    const created = await createSession(model, { ...given, ...ours, ort: runtime, executionProvider });
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

/** What was replaced, what was left and why, for every model loaded since the page started patching. */
export function patchReport(): readonly ModelReport[] {
  return [...reports];
}

function onWebGpu({ executionProviders = [] }: InferenceSession.SessionOptions): boolean {
  return executionProviders.some((each) => (typeof each === 'string' ? each : each.name) === 'webgpu');
}
