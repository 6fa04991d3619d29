/// <reference types="@webgpu/types" />
import type * as Ort from 'onnxruntime-common';
import { F16 } from '../webgpu/features.js';
import { KvCache, type KvCacheShape } from '../webgpu/kv-cache.js';
import type { ElementType } from '../webgpu/shape-class.js';
import type { AdapterDevice } from './device.js';
import { InplaceAttention } from './inplace-attention.js';
import { cacheObstacle, carrierObstacle, inplaceObstacle } from './self-test.js';

/** What is known of a device that sessions share. */
interface Shared {
  readonly attention: InplaceAttention;
  /** Why attention of an element type cannot be computed in place. */
  readonly obstacles: Map<ElementType, Promise<string | undefined>>;
}

const known = new WeakMap<GPUDevice, Shared>();
const cacheObstacles = new WeakMap<GPUDevice, Map<ElementType, Promise<string | undefined>>>();
const carriers = new WeakMap<GPUDevice, Promise<string | undefined>>();

/** Whether attention of these element types can be computed in place on a device, tried once for each. */
export async function inplace(
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
export function carriesTokens(
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
export function carrier(
  ort: typeof Ort,
  create: (model: Uint8Array) => Promise<Ort.InferenceSession>,
  device: GPUDevice,
): Promise<string | undefined> {
  const obstacle = carriers.get(device) ?? carrierObstacle(ort, create);
  carriers.set(device, obstacle);
  obstacle.catch(() => carriers.delete(device));
  return obstacle;
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
