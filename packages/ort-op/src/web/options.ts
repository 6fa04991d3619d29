/// <reference types="@webgpu/types" />
import type { PrecisionName, Schedule, ScheduleJson } from '@mxattn/core';
import type * as Ort from 'onnxruntime-common';
import type { KvCacheFormat } from '../session/cache-format.js';

/**
 * - `inplace`: this package's kernels on ONNX Runtime's device, inside its runs; an error where that is not possible.
 * - `split`: the model is cut at its attentions; this package's kernels run between its parts, each of which takes a
 *   run of its own.
 * - `carrier`: ONNX Runtime's own fused attention in the place of the model's many nodes.
 * - `stock`: an unchanged session.
 * - `auto`: the first of `inplace`, which costs nothing, `carrier` and `split` that works, with the reason in the report; without
 *   WebGPU `split`.
 */
export type WebBackend = 'auto' | 'inplace' | 'split' | 'carrier' | 'stock';

/** Options of `createSession` in browsers: ONNX Runtime's own and these. Give a precision or a schedule, not both. */
export interface WebSessionOptions extends Ort.InferenceSession.SessionOptions {
  /** The module of onnxruntime-web with its WebGPU provider (`onnxruntime-web/webgpu`). */
  readonly ort: typeof Ort;
  /**
   * What runs the model: WebGPU (default), or WebAssembly on the processor, with this package's WebAssembly kernel between the
   * parts of the model.
   */
  readonly executionProvider?: 'webgpu' | 'wasm';
  /** The device of all sessions; default: one that is requested for the first session and then shared. */
  readonly device?: GPUDevice;
  /** Of the device's adapter; default the device's own, which in Dawn's package for Node.js lacks the matrix units. */
  readonly adapterInfo?: GPUAdapterInfo;
  /** One precision for every run and layer; default f32. */
  readonly precision?: PrecisionName;
  /** Precision by step, layer, phase and token: a schedule, its JSON or its string form. */
  readonly schedule?: Schedule | ScheduleJson | string;
  /** Default `auto`. */
  readonly backend?: WebBackend;
  /**
   * Where the key/value cache lives. `packed` (default, where the model and the schedule allow it): in MX blocks on the
   * device, appended in place; `present` outputs are opaque tensors, which the next run takes as `past` and whose
   * `getData()` gives the data. `tensors`: as ordinary tensors, joined and quantised at every step.
   */
  readonly kvCache?: 'packed' | 'tensors';
  /**
   * How a packed cache holds keys and values: `mxfp4`. Default: packed where the attention that decodes has its operands so;
   * given, a finer attention reads it too.
   */
  readonly kvCacheFormat?: KvCacheFormat;
  /** Also replace attention between different activations. Default: false. */
  readonly crossAttention?: boolean;
}
