import { MxattnError } from '@mxattn/core';
import type * as Ort from 'onnxruntime-common';
import type { Tensor } from 'onnxruntime-common';
import type { CacheLayer } from '../rewrite/index.js';
import type { Feeds } from './feeds.js';

/** The keys and values of all layers. */
export interface LayerCaches {
  /** Tokens. */
  readonly length: number;
  readonly bytes: number;
  /** A copy of the first tokens. */
  fork(length: number): LayerCaches;
  keys(layer: number): Float32Array | Promise<Float32Array>;
  values(layer: number): Float32Array | Promise<Float32Array>;
  release(): void;
}

/** A cache and who uses it. */
export interface SharedCache<C extends LayerCaches> {
  readonly cache: C;
  /** A run is appending to it. */
  busy: boolean;
  /** Tensors that stand for it. */
  tensors: number;
  /** Why it cannot be continued. */
  gone?: 'failed' | 'disposed';
}

/** Past keys and values of a layer. */
export interface PastTensors {
  readonly key: Tensor;
  readonly value: Tensor;
}

/** What a `present` tensor of a session with caches of its own holds in the place of data. */
class CacheHandle {
  constructor(
    readonly shared: SharedCache<LayerCaches>,
    /** Tokens at the time; the cache may have grown since. */
    readonly length: number,
    readonly layer: number,
    readonly part: 'key' | 'value',
  ) {}

  /** The data, for whoever asks for them. */
  read(): Float32Array | Promise<Float32Array> {
    const { cache } = this.shared;
    const then = cache.length === this.length ? cache : cache.fork(this.length);
    const data = this.part === 'key' ? then.keys(this.layer) : then.values(this.layer);
    return then !== cache && data instanceof Promise ? data.finally(() => then.release()) : data;
  }
}

/**
 * Tensors that stand for the key/value caches of a session, which are kept elsewhere and appended there. Outside they have
 * the right dims and an opaque location; fed to the next run they continue the cache. A cache that was used twice is
 * copied, so that both go their own way.
 */
export class CacheTensors<C extends LayerCaches> {
  private readonly places = new Map<string, { layer: number; part: 'key' | 'value' }>();

  constructor(
    private readonly layers: readonly CacheLayer[],
    private readonly ort: Pick<typeof Ort, 'Tensor'>,
  ) {
    layers.forEach(({ pastKey, pastValue, presentKey, presentValue }, layer) => {
      for (const name of [pastKey, presentKey]) this.places.set(name, { layer, part: 'key' });
      for (const name of [pastValue, presentValue]) this.places.set(name, { layer, part: 'value' });
    });
  }

  /** Whether a name is an input or output that stands for a cache. */
  has(name: string): boolean {
    return this.places.has(name);
  }

  /**
   * The `past` tensors of a run, by layer.
   *
   * @throws MxattnError naming one that is missing or of another type or shape.
   */
  past(feeds: Feeds): PastTensors[] {
    return this.layers.map(({ pastKey, pastValue }) => ({
      key: this.pastTensor(feeds, pastKey),
      value: this.pastTensor(feeds, pastValue),
    }));
  }

  /**
   * The cache that all these tensors stand for, a copy if it has gone on without them; undefined if they hold data.
   *
   * @throws MxattnError for a cache that cannot be continued.
   */
  continued(past: readonly PastTensors[]): SharedCache<C> | undefined {
    const first = handleOf(past[0]!.key);
    if (!first) return undefined;
    const all = past.flatMap(({ key, value }) => [handleOf(key), handleOf(value)]);
    if (!all.every((each) => each?.shared === first.shared && each.length === first.length)) return undefined;
    const { length } = first;
    const shared = first.shared as SharedCache<C>;
    if (shared.gone === 'failed') {
      throw new MxattnError('this key/value cache is spoilt: a run that appended to it failed');
    }
    if (shared.gone) throw new MxattnError('this key/value cache was disposed of; start with an empty one');
    if (!shared.busy && shared.cache.length === length) return shared;
    return sharedCache(shared.cache.fork(length) as C);
  }

  /** A `present` tensor. */
  present(shared: SharedCache<C>, name: string, batch: number): Tensor {
    const { layer, part } = this.places.get(name)!;
    const { kvHeads, headSize, valueHeadSize } = this.layers[layer]!;
    const { length } = shared.cache;
    const handle = new CacheHandle(shared, length, layer, part);
    shared.tensors++;
    let disposed = false;
    // onnxruntime-common asks nothing of a GPU buffer but to be passed on.
    const tensor = this.ort.Tensor.fromGpuBuffer(handle as never, {
      dataType: 'float32',
      dims: [batch, kvHeads, length, part === 'key' ? headSize : valueHeadSize],
      download: async () => handle.read(),
      dispose: () => {
        if (disposed) return;
        disposed = true;
        shared.tensors--;
        if (shared.tensors > 0 || shared.busy) return;
        shared.gone ??= 'disposed';
        shared.cache.release();
      },
    });
    handles.set(tensor, handle);
    return tensor;
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
}

/** A cache that nothing stands for yet. */
export function sharedCache<C extends LayerCaches>(cache: C): SharedCache<C> {
  return { cache, busy: false, tensors: 0 };
}

/** Gives up a cache whose run has failed. */
export function spoil(shared: SharedCache<LayerCaches>): void {
  shared.busy = false;
  shared.gone = 'failed';
  shared.cache.release();
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
 * Memory behind a `present` tensor, in bytes, all layers together; 0 for a tensor that stands for no native or packed cache. It grows by
 * 1,024 tokens at a time.
 */
export function kvCacheBytes(present: Tensor): number {
  return handleOf(present)?.shared.cache.bytes ?? 0;
}

/** The data that a tensor holds or stands for; undefined where they are not in CPU memory. */
export function cachedData(tensor: Tensor): Float32Array | Promise<Float32Array> | undefined {
  const handle = handleOf(tensor);
  if (handle) return handle.read();
  return tensor.location === 'gpu-buffer' ? undefined : (tensor.data as Float32Array);
}
