/// <reference types="@webgpu/types" />
import { type Layout, MxattnError } from '@mxattn/core';
import { appendTokens, combine, DECODE_HEADS, DECODE_KEYS, decode, unpackTokens } from './kernels.js';
import { BLOCK, type ElementType } from './shape-class.js';
import { bindings, compiled, encode, Scratch, type Step } from './steps.js';

/** Sizes of a key/value cache and of the attention on it. */
export interface KvCacheShape {
  readonly batch: number;
  /** Query heads; up to four that share a key/value head are served together. */
  readonly heads: number;
  readonly kvHeads: number;
  /** Of query, key and value: 64 or 128. */
  readonly headSize: number;
  /** Factor on the raw scores; default 1 / sqrt(headSize). */
  readonly scale?: number;
  /** Keys before the newest that a query sees; default all. */
  readonly windowLeft?: number;
  /** Of what is appended and attended; default float32. */
  readonly elementType?: ElementType;
  /** Whether something is added to the scores; default no. */
  readonly bias?: boolean;
  /** Whether each query head has one extra score; default no. */
  readonly sinks?: boolean;
}

/** Operands of one decoding step, all of the cache's element type. */
export interface TokenBuffers {
  /** [batch, heads, headSize]; output as well. */
  readonly query: GPUBuffer;
  readonly output: GPUBuffer;
  /** [batch, kvHeads, headSize]; value as well. */
  readonly key: GPUBuffer;
  readonly value: GPUBuffer;
  /** One extra score for each query head, in nats, for a cache with sinks. */
  readonly sinks?: GPUBuffer;
  /** What is added to the scores, for a cache with a bias. */
  readonly bias?: GPUBuffer;
}

const UNLIMITED = 2 ** 30;
/** Of append.wgsl. */
const STORAGE_BUFFERS = 9;
/** Tokens by which the room grows. */
const GROWTH = 1024;

/**
 * Keys and values in MXFP4 on a device, 4.25 bits an element, and attention of one query on them. Values of the newest
 * tokens, up to 31, are float32 until their block of 32 is full. Weights are exact exponentials in 127 steps.
 *
 * It grows in place, by room for 1,024 tokens at a time. What changes it returns steps to record; all that were returned
 * before must have been submitted by then.
 */
export class KvCache {
  private parts: Parts;
  private room = 0;
  private tokens = 0;
  /** Lists of bindings for the same buffers, so that no bind group is made twice. */
  private known = new WeakMap<TokenBuffers, ReturnType<KvCache['makeBindings']>>();

  private constructor(
    private readonly device: GPUDevice,
    readonly shape: Required<KvCacheShape>,
    private readonly pipelines: Awaited<ReturnType<typeof compileAll>>,
  ) {
    this.parts = allocate(device, shape, 0);
  }

  /** @throws MxattnError (as a rejection) for another head size, or if the device does not take a kernel. */
  static async create(device: GPUDevice, init: KvCacheShape): Promise<KvCache> {
    const { headSize, heads, kvHeads } = init;
    if (!KvCache.takes(headSize)) {
      throw new MxattnError(`the packed cache has heads of 64 or 128 channels, not ${headSize}`);
    }
    if (device.limits.maxStorageBuffersPerShaderStage < STORAGE_BUFFERS) {
      throw new MxattnError(
        `the packed cache needs ${STORAGE_BUFFERS} storage buffers a kernel; request the device with ` +
          `requiredLimits: { maxStorageBuffersPerShaderStage: ${STORAGE_BUFFERS} }`,
      );
    }
    if (heads % kvHeads !== 0) {
      throw new MxattnError(`packed cache: kvHeads (${kvHeads}) does not divide heads (${heads})`);
    }
    const shape = {
      scale: 1 / Math.sqrt(headSize),
      windowLeft: UNLIMITED,
      elementType: 'float32' as const,
      bias: false,
      sinks: false,
      ...init,
    };
    return new KvCache(device, shape, await compileAll(device, shape));
  }

  /** Whether it has kernels for heads of this size. */
  static takes(headSize: number): boolean {
    return headSize === 64 || headSize === 128;
  }

  /** Tokens in the cache. */
  get length(): number {
    return this.tokens;
  }

  /** Bytes of the packed keys and values, with the room for more. */
  get bytes(): number {
    return packed(this.parts).reduce((sum, { size }) => sum + size, 0);
  }

  /** Tokens that {@link unpack} writes for each head: the length, in whole panels of 32. */
  get unpackedTokens(): number {
    return unpackedTokens(this.tokens);
  }

  /**
   * Takes `count` more tokens.
   *
   * @param key [batch, kvHeads, count, headSize] of the cache's element type, or with `BSHD` [batch, count, kvHeads, headSize]; value as well.
   * @throws MxattnError if they are more than a buffer of the device holds.
   */
  append(key: GPUBuffer, value: GPUBuffer, count: number, layout: Layout = 'BHSD'): readonly Step[] {
    this.grow(this.tokens + count);
    const first = Math.floor(this.tokens / BLOCK);
    this.tokens += count;
    this.writeUniform(count, layout, [0, 0, 0]);
    const last = Math.floor((this.tokens - 1) / BLOCK);
    const { uniform, queries, keys, keyScales, values, valueScales, tail } = this.parts;
    const { batch, kvHeads } = this.shape;
    return [
      {
        name: 'append',
        pipeline: this.pipelines.append,
        // The query is not read.
        bindings: bindings(uniform, key, key, value, queries, keys, keyScales, values, valueScales, tail),
        workgroups: [batch * kvHeads, Math.max(last - first, 1), 1],
      },
    ];
  }

  /**
   * Takes one more token and attends to all.
   *
   * @param biasStrides Steps in elements along [batch, heads, keys] of the bias, where there is one.
   * @returns what to record: append, attend in two passes.
   * @throws MxattnError if a buffer of the device does not hold another token.
   */
  step(buffers: TokenBuffers, biasStrides: readonly [number, number, number] = [0, 0, 0]): readonly Step[] {
    const { shape, pipelines } = this;
    const { batch, heads, kvHeads, headSize } = shape;
    this.grow(this.tokens + 1);
    this.tokens++;
    this.writeUniform(1, 'BHSD', biasStrides);
    const { append, attend, combined } = this.bindingsOf(buffers);
    const keyHeads = batch * kvHeads;
    const groups = servedGroups(shape);
    return [
      {
        name: 'append',
        pipeline: pipelines.appendOne,
        bindings: append,
        workgroups: [keyHeads + batch * heads, 1, 1],
      },
      {
        name: 'attend',
        pipeline: pipelines.decode,
        bindings: attend,
        workgroups: [this.chunks, keyHeads, groups],
      },
      {
        name: 'combine',
        pipeline: pipelines.combine,
        bindings: combined,
        workgroups: [headSize / 32, keyHeads, groups],
      },
    ];
  }

  /**
   * Gives keys and values as numbers, of four significant bits at most but for the newest values.
   *
   * @param key Receives [batch, kvHeads, {@link unpackedTokens}, headSize]; value as well.
   * @param elementType Of what they receive: the cache's, or float32.
   */
  unpack(key: GPUBuffer, value: GPUBuffer, elementType: ElementType = this.shape.elementType): Step {
    const { uniform, keys, keyScales, values, valueScales, tail } = this.parts;
    const { batch, kvHeads } = this.shape;
    return {
      name: 'unpack',
      pipeline: elementType === 'float32' ? this.pipelines.unpackFloats : this.pipelines.unpack,
      bindings: bindings(uniform, keys, keyScales, values, valueScales, tail, key, value),
      workgroups: [this.unpackedTokens / BLOCK, batch * kvHeads, 1],
    };
  }

  /** A cache of its own with the first `length` tokens of this one. */
  fork(length: number): KvCache {
    const { device, shape, pipelines } = this;
    const { batch, kvHeads, headSize } = shape;
    const copy = new KvCache(device, shape, pipelines);
    if (length === 0) return copy;
    copy.grow(length);
    const keyHeads = batch * kvHeads;
    const encoder = device.createCommandEncoder();
    copyHeads(encoder, this.parts, copy.parts, keyHeads);
    const panel = Math.floor(length / BLOCK);
    if (length % BLOCK > 0 && panel < Math.floor(this.tokens / BLOCK)) {
      // Its last panel was not full then: values that have been quantised since.
      const scratch = new Scratch(device);
      const bytes = keyHeads * this.unpackedTokens * headSize * 4;
      const key = scratch.allocate('unpacked keys', bytes);
      const value = scratch.allocate('unpacked values', bytes, GPUBufferUsage.COPY_SRC);
      const pass = encoder.beginComputePass();
      encode(device, pass, [this.unpack(key, value, 'float32')]);
      pass.end();
      const tail = BLOCK * headSize * 4;
      for (let head = 0; head < keyHeads; head++) {
        const from = (head * this.unpackedTokens + panel * BLOCK) * headSize * 4;
        encoder.copyBufferToBuffer(value, from, copy.parts.tail, head * tail, tail);
      }
      device.queue.submit([encoder.finish()]);
      scratch.destroy();
    } else {
      encoder.copyBufferToBuffer(this.parts.tail, 0, copy.parts.tail, 0, this.parts.tail.size);
      device.queue.submit([encoder.finish()]);
    }
    copy.tokens = length;
    copy.writeUniform(0, 'BHSD', [0, 0, 0]);
    return copy;
  }

  destroy(): void {
    this.parts.destroy();
  }

  private get chunks(): number {
    return Math.ceil(this.tokens / DECODE_KEYS);
  }

  /** Makes room for so many tokens. */
  private grow(length: number): void {
    if (length <= this.room) return;
    const { device, shape } = this;
    const room = Math.ceil(length / GROWTH) * GROWTH;
    const { batch, kvHeads, headSize } = shape;
    const largest = (batch * kvHeads * room * headSize) / 2;
    const limit = device.limits.maxStorageBufferBindingSize;
    if (largest > limit) {
      throw new MxattnError(
        `a packed cache of ${room} tokens needs buffers of ${largest} bytes, but the device has at most ${limit} ` +
          '(maxStorageBufferBindingSize); use a shorter context or a smaller batch',
      );
    }
    const before = this.parts;
    this.parts = allocate(device, shape, room);
    if (this.tokens > 0) {
      const encoder = device.createCommandEncoder();
      copyHeads(encoder, before, this.parts, batch * kvHeads);
      encoder.copyBufferToBuffer(before.tail, 0, this.parts.tail, 0, before.tail.size);
      device.queue.submit([encoder.finish()]);
    }
    before.destroy();
    this.room = room;
    this.known = new WeakMap();
  }

  private writeUniform(added: number, layout: Layout, biasStrides: readonly [number, number, number]): void {
    const { batch, heads, kvHeads, headSize, windowLeft, scale } = this.shape;
    const [head, token] = layout === 'BHSD' ? [added * headSize, headSize] : [headSize, kvHeads * headSize];
    const words = Uint32Array.of(
      batch,
      heads,
      kvHeads,
      this.room / BLOCK,
      this.tokens,
      Math.min(windowLeft, UNLIMITED),
      0,
      this.chunks,
      added,
      kvHeads * added * headSize,
      head,
      token,
      ...biasStrides,
      // Uniform structs end at a multiple of 16 bytes.
      0,
    );
    new Float32Array(words.buffer)[6] = Math.fround(Math.fround(scale) * Math.LOG2E);
    this.device.queue.writeBuffer(this.parts.uniform, 0, words);
  }

  private bindingsOf(buffers: TokenBuffers) {
    let made = this.known.get(buffers);
    if (!made) {
      made = this.makeBindings(buffers);
      this.known.set(buffers, made);
    }
    return made;
  }

  private makeBindings({ query, key, value, output, sinks, bias }: TokenBuffers) {
    const { uniform, queries, keys, keyScales, values, valueScales, tail, partial } = this.parts;
    return {
      append: bindings(uniform, query, key, value, queries, keys, keyScales, values, valueScales, tail),
      attend: bindings(
        uniform,
        queries,
        keys,
        keyScales,
        values,
        valueScales,
        tail,
        partial,
        this.shape.bias ? bias : undefined,
      ),
      combined: bindings(uniform, partial, output, this.shape.sinks ? sinks : undefined),
    };
  }
}

/** Tokens in whole panels. */
export function unpackedTokens(length: number): number {
  return Math.ceil(length / BLOCK) * BLOCK;
}

function servedGroups({ heads, kvHeads }: KvCacheShape): number {
  return Math.ceil(heads / kvHeads / DECODE_HEADS);
}

async function compileAll(device: GPUDevice, { headSize, elementType, bias, sinks }: Required<KvCacheShape>) {
  const [append, appendOne, unpack, unpackFloats, decoded, combined] = await compiled(device, [
    appendTokens(headSize, elementType, false),
    appendTokens(headSize, elementType, true),
    unpackTokens(headSize, elementType),
    unpackTokens(headSize, 'float32'),
    decode(headSize, elementType, bias),
    combine(headSize, elementType, sinks),
  ]);
  return { append, appendOne, unpack, unpackFloats, decode: decoded, combine: combined };
}

type Parts = ReturnType<typeof allocate>;

/** Buffers with room for so many tokens. */
function allocate(device: GPUDevice, shape: Required<KvCacheShape>, room: number) {
  const { batch, kvHeads, headSize } = shape;
  const scratch = new Scratch(device);
  const keyHeads = batch * kvHeads;
  const served = keyHeads * servedGroups(shape);
  const elements = keyHeads * room * headSize;
  const copied = GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
  return {
    uniform: device.createBuffer({
      label: 'mxattn cache',
      size: 64,
      usage: GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST,
    }),
    queries: scratch.allocate('queries', served * (headSize / 4 + headSize / BLOCK) * DECODE_HEADS * 4),
    keys: scratch.allocate('cached keys', elements / 2, copied),
    keyScales: scratch.allocate('scales of cached keys', keyHeads * room * 4, copied),
    values: scratch.allocate('cached values', elements / 2, copied),
    valueScales: scratch.allocate('scales of cached values', elements / BLOCK, copied),
    tail: scratch.allocate('newest values', keyHeads * BLOCK * headSize * 4, copied),
    partial: scratch.allocate(
      'partial outputs',
      served * Math.ceil(room / DECODE_KEYS) * (headSize + 2) * DECODE_HEADS * 4,
    ),
    destroy() {
      this.uniform.destroy();
      scratch.destroy();
    },
  };
}

function packed({ keys, keyScales, values, valueScales }: Parts): GPUBuffer[] {
  return [keys, keyScales, values, valueScales];
}

/** Copies of each head as many panels as there is room for. */
function copyHeads(encoder: GPUCommandEncoder, from: Parts, to: Parts, keyHeads: number): void {
  const targets = packed(to);
  packed(from).forEach((source, i) => {
    const target = targets[i]!;
    const [sourceHead, targetHead] = [source.size / keyHeads, target.size / keyHeads];
    const size = Math.min(sourceHead, targetHead);
    for (let head = 0; head < keyHeads; head++) {
      encoder.copyBufferToBuffer(source, head * sourceHead, target, head * targetHead, size);
    }
  });
}
