/// <reference types="@webgpu/types" />
import { MxattnError, toF16 } from '@mxattn/core';
import type * as Ort from 'onnxruntime-common';
import type { Tensor } from 'onnxruntime-common';
import type { PackedAttention, PackedCacheModel } from '../rewrite/index.js';
import {
  CacheTensors,
  cachedNumbers,
  type LayerCaches,
  type PastTensors,
  type SharedCache,
  sharedCache,
  spoil,
} from '../session/cache-tensors.js';
import type { Feeds } from '../session/feeds.js';
import type { Elements, TokenCounts } from '../session/token-counts.js';
import { KvCache } from '../webgpu/kv-cache.js';
import type { ElementType } from '../webgpu/shape-class.js';
import { encode } from '../webgpu/steps.js';
import type { PackedLayer } from './inplace-attention.js';

/** One run's cache. */
export interface PackedRun {
  /** What the model takes in the place of past keys and values. */
  readonly feeds: Feeds;
  readonly layers: readonly PackedLayer[];
  /** What has to be fetched for {@link PackedRun.check}. */
  readonly outputs: readonly string[];
  /**
   * To be called once the run has succeeded, before {@link PackedRun.finish}.
   *
   * @throws MxattnError (as a rejection) where a layer, or an entry of the batch, has another number of tokens.
   */
  check(elements: Elements): Promise<void>;
  /** The `present` tensors that were asked for. To be called once, when the run has succeeded. */
  finish(names: readonly string[]): Map<string, Tensor>;
  /** To be called once, when the run has failed: a cache that it has appended to is spoilt. */
  fail(): void;
}

/** The key/value caches of a session in onnxruntime-web, packed on its device. */
export class PackedCaches {
  private readonly tensors: CacheTensors<PackedLayers>;
  /** In the place of tensors of which only the shape is read. */
  private readonly nothing: GPUBuffer;

  private constructor(
    private readonly model: PackedCacheModel,
    private readonly counts: TokenCounts,
    private readonly device: GPUDevice,
    private readonly ort: Pick<typeof Ort, 'Tensor'>,
  ) {
    this.tensors = new CacheTensors(model.layers, ort);
    const { STORAGE, COPY_SRC, COPY_DST } = GPUBufferUsage;
    this.nothing = device.createBuffer({ size: 16, usage: STORAGE | COPY_SRC | COPY_DST });
  }

  /**
   * Compiles the kernels of the caches.
   *
   * @throws MxattnError (as a rejection) for heads that they do not take, or if the device does not take them.
   */
  static async create(
    model: PackedCacheModel,
    counts: TokenCounts,
    device: GPUDevice,
    ort: Pick<typeof Ort, 'Tensor'>,
  ): Promise<PackedCaches> {
    for (const cache of await emptyCaches(device, model.attentions, 1)) cache.destroy();
    return new PackedCaches(model, counts, device, ort);
  }

  /** Whether a name is an input or output that stands for a cache. */
  has(name: string): boolean {
    return this.tensors.has(name);
  }

  /** Finds or makes the cache that the `past` feeds of a run stand for. One run at a time. */
  async begin(feeds: Feeds): Promise<PackedRun> {
    const { model, counts, tensors } = this;
    const past = tensors.past(feeds);
    const [batch, , length] = past[0]!.key.dims as [number, number, number];
    const shared = tensors.continued(past) ?? (await this.imported(past, batch, length));
    shared.busy = true;
    return {
      feeds: Object.fromEntries([...model.shapeInputs].map((name) => [name, this.shapeOnly(feeds[name]!)])),
      layers: shared.cache.layers.map((cache, layer) => ({ cache, attention: model.attentions[layer]! })),
      outputs: counts.outputs,
      check: async (elements) => {
        shared.cache.checkLengths();
        await counts.check(shared.cache.length, elements);
      },
      finish: (names) => {
        shared.busy = false;
        const present = new Map(names.map((name) => [name, tensors.present(shared, name, batch)]));
        if (shared.tensors === 0) shared.cache.release();
        return present;
      },
      fail: () => {
        const unchanged = shared.cache.layers.every((layer) => layer.length === length);
        if (unchanged && shared.tensors > 0) shared.busy = false;
        else spoil(shared);
      },
    };
  }

  private shapeOnly({ type, dims }: Tensor): Tensor {
    const { Tensor } = this.ort;
    const dataType = type as 'float32' | 'float16';
    if (!dims.includes(0)) return Tensor.fromGpuBuffer(this.nothing as never, { dataType, dims });
    return dataType === 'float16'
      ? new Tensor(dataType, new Uint16Array(0), dims)
      : new Tensor(dataType, new Float32Array(0), dims);
  }

  /** A new cache with the data of these tensors. */
  private async imported(
    past: readonly PastTensors[],
    batch: number,
    length: number,
  ): Promise<SharedCache<PackedLayers>> {
    const { device, model } = this;
    const layers = await emptyCaches(device, model.attentions, batch);
    if (length === 0) return sharedCache(new PackedLayers(device, layers));
    for (const [layer, { key, value }] of past.entries()) {
      const cache = layers[layer]!;
      const { elementType } = cache.shape;
      const [keys, values] = [await this.uploaded(key, elementType), await this.uploaded(value, elementType)];
      const encoder = device.createCommandEncoder();
      const pass = encoder.beginComputePass();
      encode(device, pass, cache.append(keys.buffer, values.buffer, length));
      pass.end();
      device.queue.submit([encoder.finish()]);
      for (const { release } of [keys, values]) release();
    }
    return sharedCache(new PackedLayers(device, layers));
  }

  /** The tensor in an element type on the device. */
  private async uploaded(
    tensor: Tensor,
    elementType: ElementType,
  ): Promise<{ buffer: GPUBuffer; release(): void }> {
    let numbers = await cachedNumbers(tensor);
    if (!numbers) {
      if (tensor.type === elementType)
        return { buffer: tensor.gpuBuffer as unknown as GPUBuffer, release() {} };
      await tensor.getData();
      numbers = (await cachedNumbers(tensor))!;
    }
    const data = elementType === 'float16' ? Uint16Array.from(numbers, toF16) : numbers;
    const buffer = this.device.createBuffer({
      size: data.byteLength,
      usage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST,
    });
    this.device.queue.writeBuffer(buffer, 0, data as Float32Array<ArrayBuffer> | Uint16Array<ArrayBuffer>);
    return { buffer, release: () => buffer.destroy() };
  }
}

/** The caches of all layers for one sequence, or the sequences of one batch. */
class PackedLayers implements LayerCaches {
  constructor(
    private readonly device: GPUDevice,
    readonly layers: readonly KvCache[],
  ) {}

  get length(): number {
    return this.layers[0]!.length;
  }

  get bytes(): number {
    return this.layers.reduce((sum, { bytes }) => sum + bytes, 0);
  }

  fork(length: number): PackedLayers {
    return new PackedLayers(
      this.device,
      this.layers.map((layer) => layer.fork(length)),
    );
  }

  keys(layer: number): Promise<Float32Array> {
    return this.read(layer, 'key');
  }

  values(layer: number): Promise<Float32Array> {
    return this.read(layer, 'value');
  }

  release(): void {
    for (const layer of this.layers) layer.destroy();
  }

  /** @throws MxattnError where a run has not appended to all of them. */
  checkLengths(): void {
    const other = this.layers.findIndex((layer) => layer.length !== this.length);
    if (other >= 0) {
      throw new MxattnError(
        `the key/value cache of layer ${other} has ${this.layers[other]!.length} tokens, that of layer 0 ${this.length}`,
      );
    }
  }

  private async read(layer: number, part: 'key' | 'value'): Promise<Float32Array> {
    const { device } = this;
    const cache = this.layers[layer]!;
    const { length, unpackedTokens: rows } = cache;
    const { batch, kvHeads, headSize } = cache.shape;
    const data = new Float32Array(batch * kvHeads * length * headSize);
    if (length === 0) return data;
    const size = 4 * batch * kvHeads * rows * headSize;
    const { STORAGE, COPY_SRC, COPY_DST, MAP_READ } = GPUBufferUsage;
    const both = {
      key: device.createBuffer({ size, usage: STORAGE | COPY_SRC }),
      value: device.createBuffer({ size, usage: STORAGE | COPY_SRC }),
    };
    const readable = device.createBuffer({ size, usage: MAP_READ | COPY_DST });
    const encoder = device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    encode(device, pass, [cache.unpack(both.key, both.value, 'float32')]);
    pass.end();
    encoder.copyBufferToBuffer(both[part], 0, readable, 0, size);
    device.queue.submit([encoder.finish()]);
    await readable.mapAsync(GPUMapMode.READ);
    const all = new Float32Array(readable.getMappedRange());
    for (let head = 0; head < batch * kvHeads; head++) {
      const start = head * rows * headSize;
      data.set(all.subarray(start, start + length * headSize), head * length * headSize);
    }
    for (const buffer of [both.key, both.value, readable]) buffer.destroy();
    return data;
  }
}

function emptyCaches(
  device: GPUDevice,
  attentions: readonly PackedAttention[],
  batch: number,
): Promise<KvCache[]> {
  return Promise.all(
    attentions.map(({ heads, kvHeads, headSize, scale, windowLeft, bias, operandType: elementType }) =>
      KvCache.create(device, {
        batch,
        heads,
        kvHeads,
        headSize,
        scale,
        bias,
        elementType,
        ...(windowLeft < 0 ? {} : { windowLeft }),
      }),
    ),
  );
}
