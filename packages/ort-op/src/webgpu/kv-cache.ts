/// <reference types="@webgpu/types" />
import { attentionSpec, MxattnError, recipes } from '@mxattn/core';
import {
  appendToken,
  cacheKeys,
  cacheValues,
  combine,
  DECODE_HEADS,
  DECODE_KEYS,
  decode,
  quantiseRows,
  quantiseValues,
  rowGroups,
} from './kernels.js';
import { packedSizes, problemUniform } from './problem.js';
import { BLOCK, channelsOf, type ElementType, type ShapeClass } from './shape-class.js';
import { bindings, compiled, Scratch, type Step } from './steps.js';

/** Sizes of a key/value cache and of the attention on it. */
export interface KvCacheShape {
  readonly batch: number;
  /** Query heads; up to four that share a key/value head are served together. */
  readonly heads: number;
  readonly kvHeads: number;
  /** Of query, key and value: 64 or 128. */
  readonly headSize: number;
  /** Tokens that it has room for; rounded up to 256. */
  readonly capacity: number;
  /** Factor on the raw scores; default 1 / sqrt(headSize). */
  readonly scale?: number;
  /** Keys before the newest that a query sees; default all. */
  readonly windowLeft?: number;
  /** Of what is appended and attended; default float32. */
  readonly elementType?: ElementType;
}

/** Operands of one decoding step, all of the cache's element type. */
export interface TokenBuffers {
  /** [batch, heads, headSize]; output as well. */
  readonly query: GPUBuffer;
  readonly output: GPUBuffer;
  /** [batch, kvHeads, headSize]; value as well. */
  readonly key: GPUBuffer;
  readonly value: GPUBuffer;
  /** One extra score for each query head, in nats. */
  readonly sinks?: GPUBuffer;
}

const UNLIMITED = 2 ** 30;
/** Of append.wgsl. */
const STORAGE_BUFFERS = 9;

/**
 * Keys and values in MXFP4 on a device, 4.25 bits an element, and attention of one query on them. Values of the newest
 * tokens, up to 31, are float32 until their block of 32 is full. Weights are exact exponentials in 127 steps.
 */
export class KvCache {
  private readonly parts: ReturnType<typeof allocate>;
  private tokens = 0;

  private constructor(
    private readonly device: GPUDevice,
    private readonly shape: Required<KvCacheShape>,
    private readonly pipelines: Awaited<ReturnType<typeof compileAll>>,
  ) {
    this.parts = allocate(device, shape);
  }

  /** @throws MxattnError (as a rejection) for another head size, or if the device does not take a kernel. */
  static async create(device: GPUDevice, init: KvCacheShape): Promise<KvCache> {
    const { headSize, heads, kvHeads } = init;
    if (headSize !== 64 && headSize !== 128) {
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
      ...init,
      capacity: Math.max(DECODE_KEYS, Math.ceil(init.capacity / DECODE_KEYS) * DECODE_KEYS),
    };
    return new KvCache(device, shape, await compileAll(device, headSize, shape.elementType));
  }

  /** Tokens in the cache. */
  get length(): number {
    return this.tokens;
  }

  /** Bytes of the packed keys and values. */
  get bytes(): number {
    const { keys, keyScales, values, valueScales } = this.parts;
    return keys.size + keyScales.size + values.size + valueScales.size;
  }

  /**
   * Replaces what is in the cache.
   *
   * @param key [batch, kvHeads, length, headSize] of the cache's element type; value as well.
   * @returns what to record, once; `release` frees its scratch buffers after it was submitted.
   */
  fill(key: GPUBuffer, value: GPUBuffer, length: number): { steps: readonly Step[]; release(): void } {
    const { device, shape, pipelines, parts } = this;
    const { batch, heads, kvHeads, headSize, capacity, elementType } = shape;
    if (length > capacity) {
      throw new MxattnError(
        `the packed cache has room for ${capacity} tokens, not ${length}; make it larger`,
      );
    }
    const spec = attentionSpec({ batch, heads, kvHeads, queryLength: 1, keyLength: length, headSize });
    const kernelShape = classOf(headSize, elementType);
    const sizes = packedSizes(spec, channelsOf(kernelShape));
    const scratch = new Scratch(device);
    const uniform = problemUniform(spec, sizes, [0, 0, 0, 0]);
    const problem = device.createBuffer({
      size: uniform.byteLength,
      usage: GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST,
    });
    device.queue.writeBuffer(problem, 0, uniform);
    const keys = scratch.allocate('packed keys', sizes.keys);
    const codes = scratch.allocate('packed values', sizes.valueScales);
    const scales = scratch.allocate('scales of packed values', sizes.values - sizes.valueScales);
    this.resize(length);
    const keyHeads = batch * kvHeads;
    const panels = Math.ceil(length / BLOCK);
    const steps: Step[] = [
      {
        name: 'quantise keys',
        pipeline: pipelines.quantiseKeys,
        bindings: bindings(problem, key, keys),
        workgroups: [Math.ceil(sizes.keyRows / rowGroups(kernelShape).groupRows), keyHeads, 1],
      },
      {
        name: 'quantise values',
        pipeline: pipelines.quantiseValues,
        bindings: bindings(problem, value, codes, scales),
        workgroups: [Math.ceil(headSize / 64), sizes.valueBlocks, keyHeads],
      },
      {
        name: 'cache keys',
        pipeline: pipelines.cacheKeys,
        bindings: bindings(problem, keys, parts.keys, parts.keyScales, parts.uniform),
        workgroups: [panels, keyHeads, 1],
      },
      {
        name: 'cache values',
        pipeline: pipelines.cacheValues,
        bindings: bindings(
          problem,
          codes,
          scales,
          value,
          parts.values,
          parts.valueScales,
          parts.tail,
          parts.uniform,
        ),
        workgroups: [panels, keyHeads, 1],
      },
    ];
    return {
      steps,
      release() {
        problem.destroy();
        scratch.destroy();
      },
    };
  }

  /**
   * Takes one more token and attends to all. The queue must have been given all earlier steps.
   *
   * @returns what to record: append, attend in two passes.
   * @throws MxattnError if the cache is full.
   */
  step(buffers: TokenBuffers): readonly Step[] {
    const { shape, pipelines } = this;
    const { batch, heads, kvHeads, headSize, capacity } = shape;
    if (this.tokens === capacity) {
      throw new MxattnError(`the packed cache is full: it has room for ${capacity} tokens; make it larger`);
    }
    this.resize(this.tokens + 1);
    const { append, attend, combined } = this.bindingsOf(buffers);
    const keyHeads = batch * kvHeads;
    const groups = servedGroups(shape);
    return [
      {
        name: 'append',
        pipeline: pipelines.append,
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
        pipeline: buffers.sinks ? pipelines.combineSinks : pipelines.combine,
        bindings: combined,
        workgroups: [headSize / 32, keyHeads, groups],
      },
    ];
  }

  destroy(): void {
    this.parts.destroy();
  }

  private get chunks(): number {
    return Math.ceil(this.tokens / DECODE_KEYS);
  }

  private resize(length: number): void {
    const { batch, heads, kvHeads, capacity, windowLeft, scale } = this.shape;
    this.tokens = length;
    const words = Uint32Array.of(
      batch,
      heads,
      kvHeads,
      capacity / BLOCK,
      length,
      Math.min(windowLeft, UNLIMITED),
      0,
      this.chunks,
    );
    new Float32Array(words.buffer)[6] = Math.fround(Math.fround(scale) * Math.LOG2E);
    this.device.queue.writeBuffer(this.parts.uniform, 0, words);
  }

  private readonly known = new WeakMap<TokenBuffers, ReturnType<KvCache['makeBindings']>>();

  /** The same lists for the same buffers, so that no bind group is made twice. */
  private bindingsOf(buffers: TokenBuffers) {
    let made = this.known.get(buffers);
    if (!made) {
      made = this.makeBindings(buffers);
      this.known.set(buffers, made);
    }
    return made;
  }

  private makeBindings({ query, key, value, output, sinks }: TokenBuffers) {
    const { uniform, queries, keys, keyScales, values, valueScales, tail, partial } = this.parts;
    return {
      append: bindings(uniform, query, key, value, queries, keys, keyScales, values, valueScales, tail),
      attend: bindings(uniform, queries, keys, keyScales, values, valueScales, tail, partial),
      combined: bindings(uniform, partial, output, sinks),
    };
  }
}

function classOf(headSize: number, elementType: ElementType): ShapeClass {
  return { elementType, headSize, valueHeadSize: headSize, softcap: false, bias: false, sinks: false };
}

function servedGroups({ heads, kvHeads }: KvCacheShape): number {
  return Math.ceil(heads / kvHeads / DECODE_HEADS);
}

async function compileAll(device: GPUDevice, headSize: number, elementType: ElementType) {
  const shape = classOf(headSize, elementType);
  const [quantiseKeys, valuesQuantised, keysCached, valuesCached, append, decoded, combined, combinedSinks] =
    await compiled(device, [
      quantiseRows(shape, recipes.mxfp4, true),
      quantiseValues(shape, recipes.mxfp4, false),
      cacheKeys(headSize),
      cacheValues(headSize, elementType),
      appendToken(headSize, elementType),
      decode(headSize),
      combine(headSize, elementType, false),
      combine(headSize, elementType, true),
    ]);
  return {
    quantiseKeys,
    quantiseValues: valuesQuantised,
    cacheKeys: keysCached,
    cacheValues: valuesCached,
    append,
    decode: decoded,
    combine: combined,
    combineSinks: combinedSinks,
  };
}

function allocate(device: GPUDevice, shape: Required<KvCacheShape>) {
  const { batch, kvHeads, headSize, capacity } = shape;
  const scratch = new Scratch(device);
  const keyHeads = batch * kvHeads;
  const served = keyHeads * servedGroups(shape);
  const chunks = capacity / DECODE_KEYS;
  const elements = keyHeads * capacity * headSize;
  return {
    uniform: device.createBuffer({
      label: 'mxattn cache',
      size: 32,
      usage: GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST,
    }),
    queries: scratch.allocate('queries', served * (headSize / 4 + headSize / BLOCK) * DECODE_HEADS * 4),
    keys: scratch.allocate('cached keys', elements / 2),
    keyScales: scratch.allocate('scales of cached keys', keyHeads * capacity * 4),
    values: scratch.allocate('cached values', elements / 2),
    valueScales: scratch.allocate('scales of cached values', elements / BLOCK),
    tail: scratch.allocate('newest values', keyHeads * BLOCK * headSize * 4),
    partial: scratch.allocate('partial outputs', served * chunks * (headSize + 2) * DECODE_HEADS * 4),
    destroy() {
      this.uniform.destroy();
      scratch.destroy();
    },
  };
}
