import { MxattnError, precision, type Schedule } from '@mxattn/core';
import type { InferenceSession } from 'onnxruntime-common';
import {
  type ModelProto,
  type ModelSource,
  modelInputs,
  modelOutputs,
  passedValues,
  readModel,
  withExternalData,
  writeModel,
} from '../model/index.js';
import { addon, type NativeSession } from '../native/addon.js';
import { nativeRecipes } from '../native/backend.js';
import { addonStatus, chooseIsa } from '../native/isa.js';
import {
  type CachelessModel,
  convertModel,
  storedSchedule,
  withNativeCache,
  withoutPrecisionDefault,
} from '../rewrite/index.js';
import { announce } from './announce.js';
import { cacheFormatId, cacheFormats, type KvCacheFormat } from './cache-format.js';
import { chooseGpu, describeGpu, requiresGpu } from './device.js';
import { FusedSession } from './fused-session.js';
import { KvCaches } from './kv-cache.js';
import { cacheOutputs, NativeTensors } from './native-tensors.js';
import {
  externalDataFiles,
  type MxattnSessionOptions,
  nativeOptions,
  outputsAsData,
  stockOptions,
  unsupportedOption,
} from './options.js';
import { sessionSchedule } from './precision.js';
import type { SessionReport } from './report.js';
import { findRuntime } from './runtime.js';
import { StockSession } from './stock-session.js';
import type { MxattnSession } from './types.js';

const BACKENDS = ['auto', 'native', 'stock'];

/**
 * Opens a model with its attention replaced.
 *
 * @param createStock Opens the stock sessions; default onnxruntime-node's `InferenceSession.create`. For callers that
 * put something else in its place.
 * @returns A session with the interface of onnxruntime-common's `InferenceSession`, and a report of what was
 * replaced, what was left, and why. A model without attention to replace gets a stock session.
 * @throws MxattnError for a file that is not an ONNX model, an unknown precision, a bad schedule, and with
 * `backend: 'native'` or a GPU as `device` for whatever keeps that from being used.
 */
export async function createSession(
  source: ModelSource | ArrayBufferLike,
  options: MxattnSessionOptions = {},
  createStock?: typeof InferenceSession.create,
): Promise<MxattnSession> {
  const asked = sessionSchedule(options);
  const backend = options.backend ?? 'auto';
  if (!BACKENDS.includes(backend)) {
    throw new MxattnError(`unknown backend "${backend}"; there are ${BACKENDS.join(', ')}`);
  }
  const device = options.device ?? 'cpu';
  const bytesOrPath =
    typeof source === 'string' || source instanceof Uint8Array ? source : new Uint8Array(source);
  const runtime = findRuntime(options.runtime);

  const stock = async (report: Omit<SessionReport, 'backend'>) => {
    const { InferenceSession } = runtime.ort;
    const create = (createStock ?? InferenceSession.create) as (
      model: string | Uint8Array,
      options: InferenceSession.SessionOptions,
    ) => Promise<InferenceSession>;
    const session = await create.call(InferenceSession, bytesOrPath, stockOptions(options));
    return new StockSession(session, { backend: 'stock', ...report });
  };
  if (backend === 'stock') return stock({ replaced: [], left: [] });

  const obstacle = unsupportedOption(options) ?? addonStatus().error;
  if (obstacle) {
    if (backend === 'native') throw new MxattnError(`backend native: ${obstacle}`);
    if (requiresGpu(device)) throw new MxattnError(`device ${JSON.stringify(device)}: ${obstacle}`);
    keepsStock(obstacle);
    return stock({ reason: obstacle, replaced: [], left: [] });
  }
  const isa = chooseIsa(options.isa);
  const { gpu, missing } = chooseGpu(device, options.kvCacheFormat);
  const files = externalDataFiles(options);
  const original =
    files instanceof Map && files.size > 0 ? withExternalData(readModel(bytesOrPath), files) : bytesOrPath;
  const { model, report } = convertModel(original, { crossAttention: options.crossAttention ?? false });
  const plan = asked ?? storedSchedule(model);
  checkPrecisions(plan);
  const { replaced, left } = report;
  if (replaced.length === 0) return stock({ reason: 'no attention to replace', replaced, left });

  const path = typeof source === 'string' ? source : undefined;
  const hasCache = replaced.some((attention) => attention.hasCache);
  if (options.kvCache === 'tensors' && options.kvCacheFormat !== undefined) {
    throw new MxattnError("kvCacheFormat is for native caches; leave it out, or kvCache: 'tensors'");
  }
  const cached =
    hasCache && options.kvCache !== 'tensors'
      ? nativeCache(model, plan, replaced.length, options.kvCacheFormat)
      : undefined;
  if (hasCache && !cached && options.kvCacheFormat !== undefined) {
    announce(
      `the key/value cache of this model stays tensors, not kvCacheFormat ${options.kvCacheFormat}: its graph has no native one`,
    );
  }
  let native: NativeSession;
  try {
    native = await addon().createSession(
      runtime.libraryPath,
      writeModel(withoutPrecisionDefault(cached?.model ?? model)),
      nativeOptions(options, isa, gpu, path),
    );
  } catch (error) {
    const reason = `ONNX Runtime does not load the converted model: ${(error as Error).message}`;
    if (backend === 'native' || gpu?.required) throw new MxattnError(reason, { cause: error });
    // Whatever is wrong with it shows in a stock session, too, or is the conversion's fault.
    keepsStock(reason);
    return stock({ reason, replaced: [], left: [] });
  }
  const inputs = modelInputs(model);
  const outputs = modelOutputs(model);
  const carried = cacheOutputs(inputs, outputs);
  const asData = outputsAsData(options);
  const nativeNames = new Set([...carried].filter((name) => !asData(name)));
  const cacheIs = cached ? 'native' : nativeNames.size > 0 ? 'native tensors' : 'tensors';
  if (missing !== undefined) announce(`attention runs on the CPU kernel: ${missing}`);
  return new FusedSession(
    native,
    runtime,
    plan,
    inputs,
    outputs,
    {
      backend: 'native',
      device: gpu ? describeGpu(gpu.facts) : 'cpu',
      ...(missing === undefined ? {} : { reason: missing }),
      isa,
      ...(hasCache || carried.size > 0 ? { kvCache: cacheIs } : {}),
      ...(cached ? { kvCacheFormats: [...new Set(cached.formats)] } : {}),
      replaced,
      left,
    },
    cached &&
      new KvCaches(cached.layers, cached.shapeInputs, cached.formats.map(cacheFormatId), isa, runtime, () =>
        native.gpuInUse ? gpu?.index : undefined,
      ),
    new NativeTensors(nativeNames, passedValues(model.graph!), runtime.ort),
  );
}

/** The model with native caches and their formats, or undefined where the cache has to stay tensors. */
function nativeCache(
  model: ModelProto,
  plan: Schedule,
  layers: number,
  asked: KvCacheFormat | undefined,
): (CachelessModel & { formats: readonly KvCacheFormat[] }) | undefined {
  const formats = cacheFormats(plan, layers, asked);
  const cached = withNativeCache(model);
  return formats && 'model' in cached ? { ...cached, formats } : undefined;
}

/** @throws MxattnError when the schedule names a precision that the kernels do not have. */
function checkPrecisions(plan: Schedule): void {
  for (const name of plan.precisions) {
    if (!nativeRecipes.includes(precision(name))) {
      const names = nativeRecipes.map((recipe) => recipe.name).join(', ');
      throw new MxattnError(`the native kernels do not have precision ${name}; they have ${names}`);
    }
  }
}

function keepsStock(reason: string): void {
  announce(`attention stays on ONNX Runtime's own kernels: ${reason}`);
}
