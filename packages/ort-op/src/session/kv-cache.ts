import { MxattnError } from '@mxattn/core';
import type { Tensor } from 'onnxruntime-common';
import { addon, type NativeFeed, type NativeKvCache } from '../native/addon.js';
import { type CacheLayer, cacheInput, type NativeCacheModel } from '../rewrite/index.js';
import type { Feeds } from './feeds.js';
import type { Runtime } from './runtime.js';
import { elementTypeNumber } from './tensors.js';

/** A native cache and who uses it. */
interface SharedCache {
  readonly native: NativeKvCache;
  /** A run is appending to it. */
  busy: boolean;
  /** Tensors that stand for it. */
  tensors: number;
  /** Why it cannot be continued. */
  gone?: 'failed' | 'disposed';
}

/** What a `present` tensor of a session with native caches holds in the place of data. */
class CacheHandle {
  constructor(
    readonly shared: SharedCache,
    /** Tokens at the time; the cache may have grown since. */
    readonly length: number,
    readonly layer: number,
    readonly part: 'key' | 'value',
  ) {}

  /** The data, for whoever asks for them. */
  read(): Float32Array {
    const { native } = this.shared;
    const cache = native.length === this.length ? native : native.fork(this.length);
    return this.part === 'key' ? cache.keys(this.layer) : cache.values(this.layer);
  }
}

/** One run's cache. */
export interface CacheRun {
  /** What the model takes in the place of past keys and values. */
  readonly feeds: readonly NativeFeed[];
  /** The `present` tensors that were asked for. To be called once, when the run has succeeded. */
  finish(names: readonly string[]): Map<string, Tensor>;
  /** To be called once, when the run has failed: the cache is spoilt. */
  fail(): void;
}

/**
 * The key/value caches of a session, kept in native memory, of the host or of the GPU, and appended there. Outside they are tensors with the right
 * dims and an opaque location; fed to the next run they continue the cache. A cache that was used twice is copied, so that
 * both go their own way.
 */
export class KvCaches {
  private readonly places = new Map<string, { layer: number; part: 'key' | 'value'; past: boolean }>();

  constructor(
    private readonly layers: readonly CacheLayer[],
    private readonly shapeInputs: NativeCacheModel['shapeInputs'],
    private readonly formats: readonly number[],
    private readonly isa: string,
    private readonly runtime: Runtime,
    /** The GPU to make a cache on, if there is one by then. */
    private readonly gpu: () => number | undefined,
  ) {
    layers.forEach(({ pastKey, pastValue, presentKey, presentValue }, layer) => {
      this.places.set(pastKey, { layer, part: 'key', past: true });
      this.places.set(pastValue, { layer, part: 'value', past: true });
      this.places.set(presentKey, { layer, part: 'key', past: false });
      this.places.set(presentValue, { layer, part: 'value', past: false });
    });
  }

  /** Whether a name is an input or output that stands for a cache. */
  has(name: string): boolean {
    return this.places.has(name);
  }

  /** Finds or makes the cache that the `past` feeds of a run stand for. */
  begin(feeds: Feeds): CacheRun {
    const past = this.layers.map(({ pastKey, pastValue }) => ({
      key: this.pastTensor(feeds, pastKey),
      value: this.pastTensor(feeds, pastValue),
    }));
    const [batch, , length] = past[0]!.key.dims as [number, number, number];
    const shared = this.continued(past) ?? this.imported(past, batch, length);
    shared.busy = true;
    const addresses = shared.native.addresses;
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
        const total = shared.native.length;
        return new Map(names.map((name) => [name, this.presentTensor(shared, name, batch, total)]));
      },
      fail: () => {
        shared.busy = false;
        shared.gone = 'failed';
        shared.native.release();
      },
    };
  }

  private pastTensor(feeds: Feeds, name: string): Tensor {
    const tensor = feeds[name];
    if (!tensor)
      throw new MxattnError(`input "${name}" is missing; it is the key/value cache, empty at first`);
    const { layer, part } = this.places.get(name)!;
    const { kvHeads, headSize, valueHeadSize } = this.layers[layer]!;
    const size = part === 'key' ? headSize : valueHeadSize;
    const { dims, type } = tensor;
    if (type !== 'float32' || dims.length !== 4 || dims[1] !== kvHeads || dims[3] !== size) {
      throw new MxattnError(
        `input "${name}" is ${type} [${dims.join(', ')}], but the model takes float32 [batch, ${kvHeads}, past, ${size}]`,
      );
    }
    return tensor;
  }

  /** The cache that all these tensors stand for, a copy if it has gone on without them. */
  private continued(past: readonly { key: Tensor; value: Tensor }[]): SharedCache | undefined {
    const first = handleOf(past[0]!.key);
    if (!first) return undefined;
    const all = past.flatMap(({ key, value }) => [handleOf(key), handleOf(value)]);
    if (!all.every((each) => each?.shared === first.shared && each.length === first.length)) return undefined;
    const { shared, length } = first;
    if (shared.gone === 'failed') {
      throw new MxattnError('this key/value cache is spoilt: a run that appended to it failed');
    }
    if (shared.gone) throw new MxattnError('this key/value cache was disposed of; start with an empty one');
    if (!shared.busy && shared.native.length === length) return shared;
    return { native: shared.native.fork(length), busy: false, tensors: 0 };
  }

  /** A new cache with the data of these tensors. */
  private imported(
    past: readonly { key: Tensor; value: Tensor }[],
    batch: number,
    length: number,
  ): SharedCache {
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
        native.append(layer, dataOf(key), dataOf(value), length);
      });
    }
    return { native, busy: false, tensors: 0 };
  }

  private presentTensor(shared: SharedCache, name: string, batch: number, length: number): Tensor {
    const { layer, part } = this.places.get(name)!;
    const { kvHeads, headSize, valueHeadSize } = this.layers[layer]!;
    const handle = new CacheHandle(shared, length, layer, part);
    shared.tensors++;
    let disposed = false;
    // onnxruntime-common asks nothing of a GPU buffer but to be passed on.
    const tensor = this.runtime.ort.Tensor.fromGpuBuffer(handle as never, {
      dataType: 'float32',
      dims: [batch, kvHeads, length, part === 'key' ? headSize : valueHeadSize],
      download: async () => handle.read(),
      dispose: () => {
        if (disposed) return;
        disposed = true;
        shared.tensors--;
        if (shared.tensors > 0 || shared.busy) return;
        shared.gone ??= 'disposed';
        shared.native.release();
      },
    });
    handles.set(tensor, handle);
    return tensor;
  }
}

/** Tensors whose data were asked for have become CPU tensors, but still stand for their cache. */
const handles = new WeakMap<Tensor, CacheHandle>();

function handleOf(tensor: Tensor): CacheHandle | undefined {
  const known = handles.get(tensor);
  if (known || tensor.location !== 'gpu-buffer') return known;
  const buffer: unknown = tensor.gpuBuffer;
  return buffer instanceof CacheHandle ? buffer : undefined;
}

/**
 * Native memory behind a `present` tensor, in bytes, all layers together; 0 for a tensor that holds its own data. It grows
 * by 1,024 tokens at a time.
 */
export function kvCacheBytes(present: Tensor): number {
  return handleOf(present)?.shared.native.bytes ?? 0;
}

function dataOf(tensor: Tensor): Float32Array {
  return handleOf(tensor)?.read() ?? (tensor.data as Float32Array);
}

let zeros = new Uint8Array(0);

/** A feed of which only the shape is read: zeros that are never touched, shared by all. */
function shapeOnly(name: string, dims: readonly number[]): NativeFeed {
  const bytes = 4 * dims.reduce((product, size) => product * size, 1);
  if (zeros.length < bytes) zeros = new Uint8Array(2 * bytes);
  return { name, type: elementTypeNumber('float32')!, dims, data: zeros.subarray(0, bytes) };
}

function bytesOf({ buffer, byteOffset, byteLength }: ArrayBufferView): Uint8Array {
  return new Uint8Array(buffer, byteOffset, byteLength);
}
