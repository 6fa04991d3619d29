import type { Tensor } from 'onnxruntime-common';
import { addon, type NativeFeed, type NativeKvCache } from '../native/addon.js';
import { type CacheLayer, type CachelessModel, cacheInput } from '../rewrite/index.js';
import {
  CacheTensors,
  cachedData,
  type PastTensors,
  type SharedCache,
  sharedCache,
  spoil,
} from './cache-tensors.js';
import type { Feeds } from './feeds.js';
import { nativeTensorOf } from './native-tensors.js';
import type { Runtime } from './runtime.js';
import { bytesOf, elementTypeNumber } from './tensors.js';

/** One run's cache. */
export interface CacheRun {
  /** What the model takes in the place of past keys and values. */
  readonly feeds: readonly NativeFeed[];
  /** The `present` tensors that were asked for. To be called once, when the run has succeeded. */
  finish(names: readonly string[]): Map<string, Tensor>;
  /** To be called once, when the run has failed: the cache is spoilt. */
  fail(): void;
}

/** The key/value caches of a session, kept in native memory, of the host or of the GPU. */
export class KvCaches {
  private readonly tensors: CacheTensors<NativeKvCache>;

  constructor(
    private readonly layers: readonly CacheLayer[],
    private readonly shapeInputs: CachelessModel['shapeInputs'],
    private readonly formats: readonly number[],
    private readonly isa: string,
    runtime: Runtime,
    /** The GPU to make a cache on, if there is one by then. */
    private readonly gpu: () => number | undefined,
  ) {
    this.tensors = new CacheTensors(layers, runtime.ort);
  }

  /** Whether a name is an input or output that stands for a cache. */
  has(name: string): boolean {
    return this.tensors.has(name);
  }

  /** Finds or makes the cache that the `past` feeds of a run stand for. */
  begin(feeds: Feeds): CacheRun {
    const { tensors } = this;
    const past = tensors.past(feeds);
    const [batch, , length] = past[0]!.key.dims as [number, number, number];
    const shared = tensors.continued(past) ?? this.imported(past, batch, length);
    shared.busy = true;
    const { addresses } = shared.cache;
    return {
      feeds: [
        {
          name: cacheInput,
          type: elementTypeNumber('int64')!,
          dims: [addresses.length],
          data: bytesOf(addresses),
        },
        ...[...this.shapeInputs].map((name) => shapeOnly(name, feeds[name]!.dims)),
      ],
      finish: (names) => {
        shared.busy = false;
        return new Map(names.map((name) => [name, tensors.present(shared, name, batch)]));
      },
      fail: () => spoil(shared),
    };
  }

  /** A new cache with the data of these tensors. */
  private imported(past: readonly PastTensors[], batch: number, length: number): SharedCache<NativeKvCache> {
    const shapes = this.layers.map(({ kvHeads, headSize, valueHeadSize }, layer) => ({
      batch,
      kvHeads,
      headSize,
      valueHeadSize,
      format: this.formats[layer]!,
    }));
    const native = new (addon().KvCache)(shapes, this.isa, this.gpu());
    if (length > 0) {
      past.forEach(({ key, value }, layer) => {
        const { pastKey, pastValue } = this.layers[layer]!;
        native.append(layer, pastData(pastKey, key), pastData(pastValue, value), length);
      });
    }
    return sharedCache(native);
  }
}

function pastData(name: string, tensor: Tensor): Float32Array {
  const native = nativeTensorOf(name, tensor);
  // Native caches give their data at once, and this session takes tensors in CPU memory alone.
  return native ? new Float32Array(native.read()) : (cachedData(tensor) as Float32Array);
}

let zeros = new Uint8Array(0);

/** A feed of which only the shape is read: zeros that are never touched, shared by all. */
function shapeOnly(name: string, dims: readonly number[]): NativeFeed {
  const bytes = 4 * dims.reduce((product, size) => product * size, 1);
  if (zeros.length < bytes) zeros = new Uint8Array(2 * bytes);
  return { name, type: elementTypeNumber('float32')!, dims, data: zeros.subarray(0, bytes) };
}
