import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { MxattnError } from '@mxattn/core';

/** A tensor that stays in native memory, immutable; see native/addon/native_tensor.h. */
export interface NativeTensor {
  /** Whether its memory was given up, by `release` here or of its session. */
  readonly released: boolean;
  /** A copy of the elements. */
  read(): ArrayBuffer;
  /** Another one of the same memory, which is freed when all are released. */
  share(): NativeTensor;
  release(): void;
}

/** An output: `type` is ONNX's element type number. */
export interface NativeOutput {
  readonly type: number;
  readonly dims: readonly number[];
  readonly data: ArrayBuffer | NativeTensor;
}

/** A feed; `data` covers the bytes of the elements. */
export interface NativeFeed {
  readonly name: string;
  readonly type: number;
  readonly dims: readonly number[];
  readonly data: Uint8Array | NativeTensor;
}

export interface NativeSession {
  /**
   * @param outputs Outputs to fetch as data.
   * @param native Outputs to fetch as native tensors.
   * @returns First `outputs`, then `native`.
   */
  run(
    feeds: readonly NativeFeed[],
    outputs: readonly string[],
    native: readonly string[],
  ): Promise<NativeOutput[]>;
  /** Whether attention is computed on a GPU. */
  readonly gpuInUse: boolean;
  /** Why the CPU kernel ran in the GPU's place, if it did. */
  readonly gpuFallback: string | undefined;
  release(): void;
}

/** Options of ONNX Runtime's session, as numbers; see native/addon/session.h. */
export interface NativeSessionOptions {
  readonly isa?: string;
  /** Index in `listGpus()`; without one attention is the CPU kernel's. */
  readonly gpu?: number;
  /** What the GPU cannot do is an error, not the CPU kernel's. */
  readonly gpuRequired?: boolean;
  readonly intraOpNumThreads?: number;
  readonly interOpNumThreads?: number;
  readonly graphOptimizationLevel?: number;
  readonly executionMode?: number;
  readonly enableMemPattern?: boolean;
  readonly enableCpuMemArena?: boolean;
  readonly logId?: string;
  readonly logSeverityLevel?: number;
  readonly freeDimensionOverrides?: Readonly<Record<string, number>>;
  readonly config?: Readonly<Record<string, string>>;
}

/** Sizes and options of one attention; see native/addon/attention.h. */
export interface NativeSpec {
  readonly biasStrides: readonly [number, number, number, number];
  readonly batch: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly queryLength: number;
  readonly keyLength: number;
  readonly headSize: number;
  readonly valueHeadSize: number;
  readonly scale: number;
  readonly softcap: number;
  readonly causal: boolean;
  readonly windowLeft: number;
  readonly windowRight: number;
  readonly precision: number;
}

/** One attention. */
export interface NativeProblem extends NativeSpec {
  readonly query: Float32Array;
  readonly key: Float32Array;
  readonly value: Float32Array;
  readonly bias?: Float32Array;
  readonly sinks?: Float32Array;
  /** Build of the CPU kernel; default the fastest. */
  readonly isa?: string;
}

/** A GPU that HIP or CUDA shows. */
export interface GpuFacts {
  readonly driver: 'HIP' | 'CUDA';
  readonly name: string;
  /** `gfx942`, `sm_90`, ... */
  readonly architecture: string;
  /** In bytes. */
  readonly memory: number;
  readonly multiprocessors: number;
}

/** An opened GPU; see native/addon/gpu.h. */
export interface NativeGpu {
  readonly compiler: string;
  unsupported(spec: NativeSpec): string | undefined;
  attention(problem: NativeProblem): Promise<Float32Array>;
  release(): void;
}

/** Sizes and format of one layer's cache. */
export interface NativeCacheShape {
  readonly batch: number;
  readonly kvHeads: number;
  readonly headSize: number;
  readonly valueHeadSize: number;
  /** See session/cache-format.ts. */
  readonly format: number;
}

/** The caches of all layers; see native/addon/kv_cache.h. */
export interface NativeKvCache {
  readonly length: number;
  readonly bytes: number;
  readonly addresses: BigInt64Array;
  fork(length: number): NativeKvCache;
  append(layer: number, key: Float32Array, value: Float32Array, count: number): void;
  keys(layer: number): Float32Array;
  values(layer: number): Float32Array;
  release(): void;
}

export interface Addon {
  createSession(
    libraryPath: string,
    model: Uint8Array,
    options: NativeSessionOptions,
  ): Promise<NativeSession>;
  attention(problem: NativeProblem): Promise<Float32Array>;
  listGpus(): { readonly gpus: readonly GpuFacts[]; readonly why: string };
  readonly Gpu: new (index: number) => NativeGpu;
  readonly KvCache: new (layers: readonly NativeCacheShape[], isa: string, gpu?: number) => NativeKvCache;
  isaLevels(): string[];
  runtimeVersion(libraryPath: string): string;
  measurePeaks(threads: number): Promise<{ float32: number; int8: number }>;
}

const require = createRequire(import.meta.url);
let loaded: Addon | undefined;

/**
 * The native addon: a prebuilt one of this platform, or the one compiled by node-gyp.
 *
 * @throws MxattnError when there is none, with the command that builds it.
 */
export function addon(): Addon {
  if (loaded) return loaded;
  const root = join(dirname(fileURLToPath(import.meta.url)), '..', '..');
  try {
    const load = require('node-gyp-build') as (root: string) => Addon;
    loaded = load(root);
  } catch (error) {
    throw new MxattnError(
      `the native addon of @mxattn/ort-op cannot be loaded: ${firstLine(error)}. ` +
        'Build it with `npx node-gyp rebuild` in the folder of @mxattn/ort-op (needs a C++ compiler), ' +
        "or use backend: 'stock'.",
      { cause: error },
    );
  }
  return loaded;
}

function firstLine(error: unknown): string {
  return (error instanceof Error ? error.message : String(error)).split('\n')[0]!;
}
