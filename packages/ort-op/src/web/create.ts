/// <reference types="@webgpu/types" />
import { MxattnError, type Schedule, schedule, wasmRecipes } from '@mxattn/core';
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
import { F16 } from '../webgpu/features.js';
import { KvCache, type KvCacheShape } from '../webgpu/kv-cache.js';
import { webgpuRecipes } from '../webgpu/operand-format.js';
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
import { type AdapterDevice, requestDevice } from './device.js';
import { tellingLoss } from './device-loss.js';
import { CACHE_FORMAT, InplaceAttention } from './inplace-attention.js';
import { InplaceSession } from './inplace-session.js';
import type { WebBackend, WebSessionOptions } from './options.js';
import { PackedCaches } from './packed-caches.js';
import { PackedSession } from './packed-session.js';
import { cacheObstacle, carrierObstacle, inplaceObstacle } from './self-test.js';
import type { SplitAttention } from './split/attention.js';
import { GpuSplitAttention } from './split/gpu-attention.js';
import { openSplit } from './split/open.js';
import type { SplitParts } from './split/session.js';
import { WasmSplitAttention } from './split/wasm-attention.js';

/** What is known of a device that sessions share. */
interface Shared {
  readonly attention: InplaceAttention;
  /** Why attention of an element type cannot be computed in place. */
  readonly obstacles: Map<ElementType, Promise<string | undefined>>;
}

const known = new WeakMap<GPUDevice, Shared>();
const cacheObstacles = new WeakMap<GPUDevice, Map<ElementType, Promise<string | undefined>>>();
const carriers = new WeakMap<GPUDevice, Promise<string | undefined>>();
let requested: Promise<AdapterDevice> | undefined;

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

/** Opens a model without WebGPU. */
async function createOnWasm(
  bytes: Uint8Array,
  plan: Schedule,
  { ort, backend = 'auto', crossAttention = false }: WebSessionOptions,
  stock: Ort.InferenceSession.SessionOptions,
): Promise<MxattnSession> {
  const create = (model: Uint8Array) =>
    ort.InferenceSession.create(model, { ...stock, executionProviders: ['wasm'] });
  if (backend !== 'stock') {
    const parts = splitParts(create, new WasmSplitAttention(ort), plan, stock);
    const opened = await openSplit(readModel(bytes), crossAttention, parts);
    if (opened) return opened;
  }
  const reason = backend === 'stock' ? {} : { reason: NOTHING };
  return new StockSession(await create(bytes), { backend: 'stock', ...reason, replaced: [], left: [] });
}

function splitParts(
  create: SplitParts['create'],
  attention: SplitAttention,
  plan: Schedule,
  { preferredOutputLocation }: Ort.InferenceSession.SessionOptions,
): SplitParts {
  return { create, attention, plan, ...(preferredOutputLocation ? { preferredOutputLocation } : {}) };
}

const BACKENDS: readonly string[] = ['auto', 'inplace', 'split', 'carrier', 'stock'] satisfies WebBackend[];
const WASM_BACKENDS: readonly string[] = ['auto', 'split', 'stock'] satisfies WebBackend[];

/** @throws MxattnError for a backend or execution provider that there is not, or a precision that the kernels do not have. */
function checkOptions(plan: Schedule, backend: string, executionProvider: string): void {
  if (executionProvider !== 'webgpu' && executionProvider !== 'wasm') {
    throw new MxattnError(`unknown executionProvider "${executionProvider}"; there are webgpu, wasm`);
  }
  const wasm = executionProvider === 'wasm';
  const backends = wasm ? WASM_BACKENDS : BACKENDS;
  if (!backends.includes(backend)) {
    const where = wasm ? ' on WebAssembly' : '';
    throw new MxattnError(`unknown backend "${backend}"${where}; there are ${backends.join(', ')}`);
  }
  const names = (wasm ? wasmRecipes : webgpuRecipes).map(({ name }) => name);
  const missing = plan.precisions.find((name) => !names.includes(name));
  if (missing) {
    throw new MxattnError(
      `the ${wasm ? 'WebAssembly' : 'WebGPU'} kernels do not have precision ${missing}; they have ${names.join(', ')}`,
    );
  }
}

/** @throws MxattnError for a packed cache that there is not. */
function checkCacheOptions({ kvCache = 'packed', kvCacheFormat }: WebSessionOptions): void {
  if (kvCache !== 'packed' && kvCache !== 'tensors') {
    throw new MxattnError(`unknown kvCache "${kvCache as string}"; there are packed, tensors`);
  }
  if (kvCacheFormat === undefined) return;
  if (kvCache === 'tensors') {
    throw new MxattnError("kvCacheFormat is for packed caches; leave it out, or kvCache: 'tensors'");
  }
  if (kvCacheFormat !== CACHE_FORMAT) {
    throw new MxattnError(
      `the packed cache on WebGPU is ${CACHE_FORMAT}, not ${kvCacheFormat}; leave kvCacheFormat out`,
    );
  }
}

/**
 * Tries whether attention can be computed in place in this onnxruntime-web, with a tiny model in float32.
 *
 * @returns why not; undefined if it can.
 */
export async function inplaceStatus(
  ort: typeof Ort,
  { device, adapterInfo }: AdapterDevice,
): Promise<string | undefined> {
  const provider = { name: 'webgpu', device } as Ort.InferenceSession.WebGpuExecutionProviderOption;
  const create = (model: Uint8Array) =>
    ort.InferenceSession.create(model, { executionProviders: [provider] });
  return (await inplace(ort, create, device, adapterInfo, new Set(['float32'] as const))).obstacle;
}

/** Whether attention of these element types can be computed in place on a device, tried once for each. */
async function inplace(
  ort: typeof Ort,
  create: (model: Uint8Array) => Promise<Ort.InferenceSession>,
  device: GPUDevice,
  adapterInfo: GPUAdapterInfo,
  types: ReadonlySet<ElementType>,
): Promise<{ readonly attention: InplaceAttention; readonly obstacle: string | undefined }> {
  // Programs that are compiled from now on are seen, those of the tests included.
  const shared = known.get(device) ?? {
    attention: new InplaceAttention(device, adapterInfo),
    obstacles: new Map(),
  };
  known.set(device, shared);
  const { attention, obstacles } = shared;
  const test = (type: ElementType): Promise<string | undefined> => {
    if (type === 'float16' && !device.features.has(F16)) return Promise.resolve(NO_F16);
    return attention.inTurn(() => inplaceObstacle(ort, create, attention, type));
  };
  const found = [...types].map((type) => {
    const obstacle = obstacles.get(type) ?? test(type);
    obstacles.set(type, obstacle);
    obstacle.catch(() => obstacles.delete(type));
    return obstacle;
  });
  return { attention, obstacle: (await Promise.all(found)).find(Boolean) };
}

const NO_F16 = `ONNX Runtime computes float16 on devices with the feature ${F16} only; request the device with it`;

/** Whether new tokens can be carried to packed caches on a device, tried once for each element type. */
function carriesTokens(
  ort: typeof Ort,
  create: (model: Uint8Array) => Promise<Ort.InferenceSession>,
  device: GPUDevice,
  attention: InplaceAttention,
  heads: Pick<KvCacheShape, 'headSize'> & { readonly elementType: ElementType },
): Promise<string | undefined> {
  const known = cacheObstacles.get(device) ?? new Map<ElementType, Promise<string | undefined>>();
  cacheObstacles.set(device, known);
  const before = known.get(heads.elementType);
  if (before) return before;
  const obstacle = KvCache.create(device, { batch: 1, heads: 4, kvHeads: 2, bias: true, ...heads }).then(
    (cache) =>
      attention.inTurn(() => cacheObstacle(ort, create, attention, cache)).finally(() => cache.destroy()),
  );
  // Another model may have heads of another size.
  obstacle.then(
    () => known.set(heads.elementType, obstacle),
    () => {},
  );
  return obstacle;
}

/** Whether ONNX Runtime's fused attention is right on a device, tried once. */
function carrier(
  ort: typeof Ort,
  create: (model: Uint8Array) => Promise<Ort.InferenceSession>,
  device: GPUDevice,
): Promise<string | undefined> {
  const obstacle = carriers.get(device) ?? carrierObstacle(ort, create);
  carriers.set(device, obstacle);
  obstacle.catch(() => carriers.delete(device));
  return obstacle;
}

function sharedDevice(): Promise<AdapterDevice> {
  requested ??= requestDevice().then((made) => {
    void made.device.lost.then(() => {
      requested = undefined;
    });
    return made;
  });
  requested.catch(() => {
    requested = undefined;
  });
  return requested;
}

async function bytesOf(source: string | Uint8Array | ArrayBuffer): Promise<Uint8Array> {
  if (typeof source !== 'string') return source instanceof Uint8Array ? source : new Uint8Array(source);
  const response = await fetch(source);
  if (!response.ok) throw new MxattnError(`cannot fetch the model ${source}: status ${response.status}`);
  return new Uint8Array(await response.arrayBuffer());
}
