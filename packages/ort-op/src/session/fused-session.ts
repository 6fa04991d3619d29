import { MxattnError, type Schedule } from '@mxattn/core';
import type { InferenceSession, Tensor } from 'onnxruntime-common';
import type { ValueSignature } from '../model/index.js';
import type { NativeOutput, NativeSession } from '../native/addon.js';
import { precisionInput } from '../rewrite/index.js';
import { announce } from './announce.js';
import { type Feeds, nativeFeeds } from './feeds.js';
import type { KvCaches } from './kv-cache.js';
import { valueMetadata } from './metadata.js';
import type { NativeTensors } from './native-tensors.js';
import { layerPrecisions } from './precision.js';
import type { SessionReport } from './report.js';
import { type Fetches, type MxattnRunOptions, runArguments } from './run-options.js';
import type { Runtime } from './runtime.js';
import { elementType, elementTypeNumber, typedData } from './tensors.js';
import type { MxattnSession } from './types.js';

/** A session whose attention runs on this package's CPU kernel. */
export class FusedSession implements MxattnSession {
  readonly inputNames: readonly string[];
  readonly outputNames: readonly string[];
  readonly inputMetadata: readonly InferenceSession.ValueMetadata[];
  readonly outputMetadata: readonly InferenceSession.ValueMetadata[];

  constructor(
    private readonly native: NativeSession,
    private readonly runtime: Runtime,
    private readonly plan: Schedule,
    private readonly inputs: readonly ValueSignature[],
    outputs: readonly ValueSignature[],
    private readonly opened: SessionReport,
    private readonly caches: KvCaches | undefined,
    private readonly nativeTensors: NativeTensors,
  ) {
    this.inputNames = inputs.map((input) => input.name);
    this.outputNames = outputs.map((output) => output.name);
    this.inputMetadata = inputs.map(valueMetadata);
    this.outputMetadata = outputs.map(valueMetadata);
    this.announceFallback();
  }

  get report(): SessionReport {
    const reason = this.native.gpuFallback;
    if (reason === undefined) return this.opened;
    return { ...this.opened, reason, ...(this.native.gpuInUse ? {} : { device: 'cpu' }) };
  }

  async run(
    feeds: Feeds,
    fetchesOrOptions?: Fetches | MxattnRunOptions,
    maybeOptions?: MxattnRunOptions,
  ): Promise<InferenceSession.ReturnType> {
    const { names, targets, options } = runArguments(this.outputNames, fetchesOrOptions, maybeOptions);
    const isCache = (name: string) => this.caches?.has(name) ?? false;
    const isNative = (name: string) => this.nativeTensors.has(name) && !targets.has(name);
    const given = nativeFeeds(this.inputs, feeds, isCache);
    const precisions = layerPrecisions(this.plan, this.opened.replaced.length, feeds, options);
    const cache = this.caches?.begin(feeds);
    const passed = this.nativeTensors.passed(names.filter(isNative), feeds);
    const computed = names.filter((name) => !isCache(name) && !passed.has(name));
    // ONNX Runtime runs nothing when it is asked for nothing.
    if (computed.length === 0)
      computed.push(...this.outputNames.filter((name) => !isCache(name)).slice(0, 1));
    const fetched = [...new Set([...computed.filter((name) => !isNative(name)), ...(cache?.outputs ?? [])])];
    const kept = computed.filter(isNative);
    const running = this.native.run(
      [
        ...given,
        ...(cache?.feeds ?? []),
        {
          name: precisionInput,
          type: elementTypeNumber('int32')!,
          dims: [precisions.length],
          data: new Uint8Array(precisions.buffer),
        },
      ],
      fetched,
      kept,
    );
    const outputs = new Map<string, NativeOutput>();
    const order = [...fetched, ...kept];
    try {
      for (const [i, output] of (await running).entries()) outputs.set(order[i]!, output);
      await cache?.check((name) => {
        const output = outputs.get(name);
        return output ? new Int32Array(output.data as ArrayBuffer) : (feeds[name]!.data as Int32Array);
      });
    } catch (error) {
      cache?.fail();
      for (const tensor of passed.values()) tensor.dispose();
      throw error;
    }
    this.announceFallback();
    const tensors = new Map([...passed, ...(cache?.finish(names.filter(isCache)) ?? [])]);
    for (const name of computed) {
      tensors.set(name, this.tensor(name, outputs.get(name)!, targets.get(name)));
    }
    return Object.fromEntries(names.map((name) => [name, tensors.get(name)!]));
  }

  private announceFallback(): void {
    const reason = this.native.gpuFallback;
    if (reason !== undefined) announce(`attention runs on the CPU kernel: ${reason}`);
  }

  private tensor(name: string, output: NativeOutput, target: Tensor | undefined): Tensor {
    if (!(output.data instanceof ArrayBuffer)) {
      return this.nativeTensors.tensor(elementType(output.type), output.dims, output.data);
    }
    const { type, data } = typedData(output.type, output.data);
    if (!target) return new this.runtime.ort.Tensor(type, data as Float32Array, output.dims);
    if (target.type !== type || target.size !== data.length) {
      throw new MxattnError(
        `output "${name}" is ${type} [${output.dims.join(', ')}], ` +
          `but the tensor to fetch it into is ${target.type} [${target.dims.join(', ')}]`,
      );
    }
    (target.data as Float32Array).set(data as Float32Array);
    return target;
  }

  async release(): Promise<void> {
    this.native.release();
  }

  startProfiling(): void {
    throw new MxattnError("profiling is not supported by this session; create it with backend: 'stock'");
  }

  endProfiling(): void {
    this.startProfiling();
  }
}
