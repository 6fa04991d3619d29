import { dirname } from 'node:path';
import type { PrecisionName, Schedule, ScheduleJson } from '@mxattn/core';
import type { InferenceSession } from 'onnxruntime-common';
import type { NativeSessionOptions } from '../native/addon.js';
import type { KvCacheFormat } from './cache-format.js';
import type { ChosenGpu, SessionDevice } from './device.js';

/**
 * - `native`: this package's CPU kernel inside a session of its own; an error where it cannot be used.
 * - `stock`: an unchanged onnxruntime-node session.
 * - `auto`: `native` where it works, else `stock`, announced once.
 */
export type SessionBackend = 'auto' | 'native' | 'stock';

/** Options of `createSession`: ONNX Runtime's own and these. Give a precision or a schedule, not both. */
export interface MxattnSessionOptions extends InferenceSession.SessionOptions {
  /** One precision for every run and layer; default what the model says, else f32. */
  readonly precision?: PrecisionName;
  /** Precision by step, layer and phase: a schedule, its JSON or its string form. */
  readonly schedule?: Schedule | ScheduleJson | string;
  /** Default `auto`. */
  readonly backend?: SessionBackend;
  /** Where attention is computed. Default `cpu`. */
  readonly device?: SessionDevice;
  /** Also replace attention between different activations, as of a decoder to its encoder. Default: false. */
  readonly crossAttention?: boolean;
  /**
   * Where the key/value cache lives. `native` (default): in native memory; `present` outputs are opaque tensors, which
   * the next run takes as `past` and whose `getData()` gives the data. Where the model and the schedule allow it the cache is
   * appended in place, else each run makes new tensors (`report.kvCache` tells). `tensors`: as ordinary tensors.
   */
  readonly kvCache?: 'native' | 'tensors';
  /**
   * How a native cache holds keys and values; default: as the attention that decodes has its operands. A finer attention
   * may read a coarser cache, for instance `precision: 'mxfp6'` one of `mxfp4`.
   */
  readonly kvCacheFormat?: KvCacheFormat;
  /** Threads within an operator; short for `intraOpNumThreads`. */
  readonly threads?: number;
  /** Build of the CPU kernel, for tests and comparisons; default the fastest. */
  readonly isa?: string;
  /** The module whose onnxruntime-node is used (file URL or path); default this package. */
  readonly runtime?: string | URL;
}

const OPTIMIZATION_LEVELS = { disabled: 0, basic: 1, extended: 2, layout: 3, all: 99 } as const;

/** Names the option that a session of this package cannot honour, or returns undefined. */
export function unsupportedOption(options: MxattnSessionOptions): string | undefined {
  for (const provider of options.executionProviders ?? []) {
    const name = typeof provider === 'string' ? provider : provider.name;
    if (name !== 'cpu') return `executionProviders has "${name}"; only cpu is supported`;
  }
  if (options.enableProfiling) return 'enableProfiling is not supported';
  if (options.optimizedModelFilePath) return 'optimizedModelFilePath is not supported';
  const files = externalDataFiles(options);
  if (typeof files === 'string') return files;
  const locations = options.preferredOutputLocation;
  for (const location of typeof locations === 'object' ? Object.values(locations) : [locations ?? 'cpu']) {
    if (location !== 'cpu') return `preferredOutputLocation is "${location}"; only cpu is supported`;
  }
  return undefined;
}

/** Tells the outputs that are to be data: all with `kvCache: 'tensors'`, and those whose preferred location is `cpu`. */
export function outputsAsData({
  kvCache,
  preferredOutputLocation: location,
}: Pick<MxattnSessionOptions, 'kvCache' | 'preferredOutputLocation'>): (name: string) => boolean {
  if (kvCache === 'tensors') return () => true;
  return (name) => (typeof location === 'object' ? location[name] : location) === 'cpu';
}

/** A model that is handed over as bytes has to be smaller than this, by the rules of protobuf. */
const LARGEST_MODEL = 2 ** 31 - 1;

/**
 * The contents of `externalData`, by their paths. A plain path is a file beside the model, which is read from there.
 *
 * @returns Or why they cannot be used.
 */
export function externalDataFiles({
  externalData = [],
}: Pick<InferenceSession.SessionOptions, 'externalData'>): Map<string, Uint8Array> | string {
  const files = new Map<string, Uint8Array>();
  let bytes = 0;
  for (const file of externalData) {
    if (typeof file === 'string') continue;
    if (!(file.data instanceof Uint8Array))
      return `externalData has "${file.path}" as something else than a Uint8Array`;
    files.set(file.path, file.data);
    bytes += file.data.byteLength;
  }
  if (bytes > LARGEST_MODEL) return 'externalData is larger than 2 GB; pass the path of the model instead';
  return files;
}

/** ONNX Runtime's options in the form the addon takes them. */
export function nativeOptions(
  options: MxattnSessionOptions,
  isa: string,
  gpu: ChosenGpu | undefined,
  modelPath: string | undefined,
): NativeSessionOptions {
  const threads = options.threads ?? options.intraOpNumThreads;
  return {
    isa,
    ...(gpu ? { gpu: gpu.index, gpuRequired: gpu.required } : {}),
    ...defined({
      intraOpNumThreads: threads,
      interOpNumThreads: options.interOpNumThreads,
      enableMemPattern: options.enableMemPattern,
      enableCpuMemArena: options.enableCpuMemArena,
      logId: options.logId,
      logSeverityLevel: options.logSeverityLevel,
      freeDimensionOverrides: options.freeDimensionOverrides,
    }),
    graphOptimizationLevel: OPTIMIZATION_LEVELS[options.graphOptimizationLevel ?? 'all'],
    executionMode: options.executionMode === 'parallel' ? 1 : 0,
    config: {
      ...configEntries(options.extra),
      // A rewritten model is passed as bytes; its external data stays beside the original file.
      ...(modelPath ? { 'session.model_external_initializers_file_folder_path': dirname(modelPath) } : {}),
    },
  };
}

/** The options for a stock session: this package's own taken out. */
export function stockOptions(options: MxattnSessionOptions): InferenceSession.SessionOptions {
  const {
    precision,
    schedule,
    backend,
    device,
    crossAttention,
    kvCache,
    kvCacheFormat,
    threads,
    isa,
    runtime,
    ...rest
  } = options;
  return threads === undefined ? rest : { ...rest, intraOpNumThreads: threads };
}

type Defined<T> = { [K in keyof T]?: Exclude<T[K], undefined> };

function defined<T extends object>(values: T): Defined<T> {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as Defined<T>;
}

/** `extra` nests the parts of ONNX Runtime's dotted configuration keys. */
function configEntries(extra: Record<string, unknown> = {}, prefix = ''): Record<string, string> {
  const entries: Record<string, string> = {};
  for (const [key, value] of Object.entries(extra)) {
    if (typeof value === 'object' && value !== null) {
      Object.assign(entries, configEntries(value as Record<string, unknown>, `${prefix}${key}.`));
    } else {
      entries[prefix + key] = String(value);
    }
  }
  return entries;
}
