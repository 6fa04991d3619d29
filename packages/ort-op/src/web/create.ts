/// <reference types="@webgpu/types" />
import { MxattnError, type Schedule, schedule } from '@mxattn/core';
import type * as Ort from 'onnxruntime-common';
import { type ModelProto, modelInputs, modelOutputs, readModel, writeModel } from '../model/index.js';
import {
  type ConversionReport,
  convertModel,
  type PackedCacheModel,
  type TokenCount,
  withPackedCache,
} from '../rewrite/index.js';
import { cacheFormats } from '../session/cache-format.js';
import { sessionSchedule } from '../session/precision.js';
import { StockSession } from '../session/stock-session.js';
import { TokenCounts } from '../session/token-counts.js';
import type { MxattnSession } from '../session/types.js';
import type { ElementType } from '../webgpu/shape-class.js';
import {
  carrierNodes,
  carrierOf,
  hasBias,
  hasPast,
  hasSinks,
  type NodeFeatures,
  nodeFeatures,
  nodeObstacle,
  softcapOf,
} from './carrier-nodes.js';
import { checkCacheOptions, checkOptions } from './check-options.js';
import { createOnWasm } from './create-on-wasm.js';
import { type AdapterDevice, sharedDevice } from './device.js';
import { tellingLoss } from './device-loss.js';
import { CACHE_FORMAT } from './inplace-attention.js';
import { InplaceSession } from './inplace-session.js';
import { carrier, carriesTokens, inplace } from './obstacles.js';
import type { WebSessionOptions } from './options.js';
import { PackedCaches } from './packed-caches.js';
import { PackedSession } from './packed-session.js';
import { GpuSplitAttention } from './split/gpu-attention.js';
import { openSplit, splitParts } from './split/open.js';

/**
 * Opens a model in onnxruntime-web on WebGPU with its attention replaced.
 *
 * @param source The bytes of the model; a string is fetched.
 * @returns A session with the interface of onnxruntime-common's `InferenceSession`, and a report of what was replaced, what was
 * left, and why.
 * @throws MxattnError for what is not an ONNX model, an unknown precision, a bad schedule, no WebGPU, and with
 * `backend: 'inplace'` for whatever keeps the kernels from being used.
 */
export async function createSession(
  source: string | Uint8Array | ArrayBuffer,
  options: WebSessionOptions,
): Promise<MxattnSession> {
  const {
    ort,
    device: given,
    adapterInfo: givenInfo,
    executionProvider = 'webgpu',
    precision,
    schedule: asked,
    backend = 'auto',
    crossAttention,
    kvCache,
    kvCacheFormat,
    ...stock
  } = options;
  const plan = sessionSchedule(options) ?? schedule('f32');
  checkOptions(plan, backend, executionProvider);
  checkCacheOptions(options);
  const bytes = await bytesOf(source);
  if (executionProvider === 'wasm') return createOnWasm(bytes, plan, options, stock);
  const { device, adapterInfo = device.adapterInfo } = given
    ? { device: given, adapterInfo: givenInfo }
    : await sharedDevice();
  const session = await createOnWebGpu(bytes, plan, options, stock, { device, adapterInfo });
  return tellingLoss(session, device);
}

async function createOnWebGpu(
  bytes: Uint8Array,
  plan: Schedule,
  options: WebSessionOptions,
  stock: Ort.InferenceSession.SessionOptions,
  { device, adapterInfo }: AdapterDevice,
): Promise<MxattnSession> {
  const { ort, backend = 'auto', crossAttention = false } = options;
  const create = (model: Uint8Array, locations = stock.preferredOutputLocation) =>
    ort.InferenceSession.create(model, {
      ...stock,
      ...(locations === undefined ? {} : { preferredOutputLocation: locations }),
      executionProviders: [{ name: 'webgpu', device } as Ort.InferenceSession.WebGpuExecutionProviderOption],
    });
  if (backend === 'stock') {
    return new StockSession(await create(bytes), { backend: 'stock', replaced: [], left: [] });
  }
  const original = readModel(bytes);
  const split = (reason?: string) => {
    const attention = new GpuSplitAttention(ort, device, adapterInfo);
    return openSplit(original, crossAttention, splitParts(create, attention, plan, stock), reason);
  };
  const unchanged = async (reason: string) =>
    new StockSession(await create(bytes), { backend: 'stock', reason, replaced: [], left: [] });
  const splitOr = async (reason: string) => {
    try {
      return (await split(reason)) ?? (await unchanged(reason));
    } catch (error) {
      if (!(error instanceof MxattnError)) throw error;
      return unchanged(`${reason}; ${error.message}`);
    }
  };
  if (backend === 'split') return (await split()) ?? unchanged(NOTHING);
  const { model, report } = convertModel(original, { target: 'contrib', crossAttention });
  const nodes = carrierNodes(model);
  const ours = new Set(report.replaced.flatMap((_, layer) => carrierOf(nodes, layer) ?? []));
  const types = new Set<ElementType>(report.replaced.map(({ elementType }) => elementType));
  if (types.size === 0) types.add('float32');
  const shared = backend === 'carrier' ? undefined : await inplace(ort, create, device, adapterInfo, types);
  const fallbackObstacle = () => carrier(ort, create, device);
  const hasCache = report.replaced.some((each) => each.hasCache) || nodes.some(hasPast);
  const cached =
    hasCache && shared && shared.obstacle === undefined
      ? await packedCache(original, plan, options, async (packed, counts) => {
          const { headSize } = packed.attentions[0]!;
          const types = new Set(packed.attentions.map(({ operandType }) => operandType));
          const { attention, obstacle } = await inplace(ort, create, device, adapterInfo, types);
          if (obstacle !== undefined) throw new MxattnError(obstacle);
          for (const elementType of types) {
            const obstacle = await carriesTokens(ort, create, device, attention, { headSize, elementType });
            if (obstacle !== undefined) throw new MxattnError(obstacle);
          }
          return PackedCaches.create(packed, new TokenCounts(counts, original), device, ort);
        })
      : undefined;
  if (cached && 'caches' in cached) {
    const { attention } = shared!;
    const { caches, packed, report } = cached;
    await Promise.all(
      packed.attentions.flatMap(({ headSize, bias, operandType: elementType }) => {
        const shape = { elementType, headSize, valueHeadSize: headSize, softcap: false, bias, sinks: false };
        return plan.precisions.map((name) => attention.prepare(shape, name));
      }),
    );
    return new PackedSession(
      await create(writeModel(packed.model)),
      { attention, plan, nodes: packed.attentions.map(() => PACKED_NODE), fallbackObstacle },
      caches,
      { inputs: modelInputs(original), outputs: modelOutputs(original) },
      { backend: 'inplace', kvCache: 'packed', kvCacheFormats: [CACHE_FORMAT], ...report },
    );
  }
  const obstacle = shared
    ? (shared.obstacle ?? nodes.map((node) => nodeObstacle(node, ours)).find(Boolean))
    : 'not asked for';
  if (obstacle !== undefined && backend === 'inplace') {
    throw new MxattnError(`attention cannot run in place in onnxruntime-web: ${obstacle}`);
  }
  if (nodes.length === 0) {
    const reason = report.left[0] ? `ONNX Runtime has no operator for it: ${report.left[0].reason}` : NOTHING;
    if (backend === 'auto' && report.left.length > 0) return splitOr(reason);
    return new StockSession(await create(bytes), { backend: 'stock', ...report, reason });
  }
  if (!shared || obstacle !== undefined) {
    const reason = `not in place: ${obstacle}`;
    const capped = [...ours].some((node) => softcapOf(node) !== 0);
    const wrong = capped
      ? "ONNX Runtime's own fused attention leaves out the soft cap"
      : await carrier(ort, create, device);
    if (wrong === undefined) {
      return new StockSession(await create(writeModel(model)), { backend: 'carrier', reason, ...report });
    }
    if (backend === 'carrier') throw new MxattnError(`backend carrier: ${wrong}`);
    return splitOr(`${reason}; ${wrong}`);
  }
  const { attention } = shared;
  const session = await create(writeModel(model));
  await Promise.all(
    report.replaced.flatMap(({ elementType, headSize, valueHeadSize }, layer) => {
      const node = carrierOf(nodes, layer);
      if (!node || headSize === undefined || headSize !== valueHeadSize) return [];
      const kind = { softcap: softcapOf(node) > 0, bias: hasBias(node), sinks: hasSinks(node) };
      const shape = { elementType, headSize, valueHeadSize, ...kind };
      return plan.precisions.map((name) => attention.prepare(shape, name));
    }),
  );
  return new InplaceSession(
    session,
    { attention, plan, nodes: nodeFeatures(nodes, ours), fallbackObstacle },
    {
      backend: 'inplace',
      ...(cached ? { kvCache: 'tensors', kvCacheReason: cached.reason } : {}),
      ...report,
    },
  );
}

/** The model with packed caches, or why its cache stays tensors. */
async function packedCache(
  original: ModelProto,
  plan: Schedule,
  { kvCache, kvCacheFormat, crossAttention = false }: WebSessionOptions,
  open: (packed: PackedCacheModel, counts: readonly TokenCount[]) => Promise<PackedCaches>,
): Promise<
  | { readonly reason: string }
  | { readonly caches: PackedCaches; readonly packed: PackedCacheModel; readonly report: ConversionReport }
> {
  if (kvCache === 'tensors') return { reason: 'asked for' };
  const { model, report, tokenCounts } = convertModel(original, { crossAttention, unpaddedCaches: true });
  const formats = cacheFormats(plan, report.replaced.length, kvCacheFormat);
  if (!formats?.every((format) => format === CACHE_FORMAT)) {
    return { reason: `the attention that decodes is not ${CACHE_FORMAT} in all layers and runs` };
  }
  if (carrierNodes(model).length > 0) return { reason: 'the model has other fused attentions' };
  const packed = withPackedCache(model, report.replaced);
  if ('reason' in packed) return packed;
  try {
    return { caches: await open(packed, tokenCounts), packed, report };
  } catch (error) {
    if (!(error instanceof MxattnError)) throw error;
    return { reason: error.message };
  }
}

/** Its dispatches say all that is not known from the model. */
const PACKED_NODE: NodeFeatures = { softcap: 0, sinks: false, equalLengths: true };

const NOTHING = 'no attention to replace';

async function bytesOf(source: string | Uint8Array | ArrayBuffer): Promise<Uint8Array> {
  if (typeof source !== 'string') return source instanceof Uint8Array ? source : new Uint8Array(source);
  const response = await fetch(source);
  if (!response.ok) throw new MxattnError(`cannot fetch the model ${source}: status ${response.status}`);
  return new Uint8Array(await response.arrayBuffer());
}
