/// <reference types="@webgpu/types" />
import { setFlagsFromString } from 'node:v8';
import { MxattnError } from '@mxattn/core';
import { openDawn } from './dawn.js';

/** A session of onnxruntime-web, as far as it is used here. */
export interface WebSession {
  readonly inputNames: readonly string[];
  readonly outputNames: readonly string[];
  run(feeds: Readonly<Record<string, unknown>>): Promise<Record<string, { getData(): Promise<unknown> }>>;
  release(): Promise<void>;
}

/** The module onnxruntime-web, as far as it is used here. */
export interface WebRuntime {
  readonly InferenceSession: {
    create(model: Uint8Array, options: Readonly<Record<string, unknown>>): Promise<WebSession>;
  };
  readonly Tensor: new (type: string, data: unknown, dims: readonly number[]) => unknown;
}

/** With WebAssembly, WebGPU and asyncify in one file, which the package does not export by name. */
const BUNDLE = './ort.webgpu.bundle.min.mjs';

let runtime: Promise<WebRuntime> | undefined;

/**
 * onnxruntime-web with its WebGPU provider on this machine's GPU. It finds WebGPU in `navigator.gpu`, which this defines;
 * `process.exit` or `delete globalThis.navigator` lets the process end.
 *
 * @throws MxattnError (as a rejection) if one of the packages `webgpu` and `onnxruntime-web` is missing.
 */
export function webRuntime(): Promise<WebRuntime> {
  runtime ??= load();
  return runtime;
}

async function load(): Promise<WebRuntime> {
  const gpu = await openDawn();
  Object.defineProperty(globalThis, 'navigator', { value: { gpu }, configurable: true, writable: true });
  copySharedWrites();
  // The optimising compiler takes a minute for this module before the first run; the baseline compiler is as fast for it.
  setFlagsFromString('--liftoff-only');
  try {
    return (await import(new URL(BUNDLE, import.meta.resolve('onnxruntime-web')).href)) as WebRuntime;
  } catch (error) {
    throw new MxattnError(
      `sessions on a GPU in Node.js need the package "onnxruntime-web": npm install onnxruntime-web ` +
        `(${(error as Error).message.split('\n')[0]})`,
    );
  }
}

/** Dawn's package does not take the shared memory that onnxruntime-web writes to the queue from: copies it first. */
function copySharedWrites(): void {
  const queue = (globalThis as unknown as { GPUQueue: { prototype: GPUQueue } }).GPUQueue.prototype;
  const { writeBuffer } = queue;
  queue.writeBuffer = function write(buffer, bufferOffset, data, dataOffset, size): undefined {
    const view = ArrayBuffer.isView(data) ? data : new Uint8Array(data as ArrayBuffer);
    if (!(view.buffer instanceof SharedArrayBuffer)) {
      writeBuffer.call(this, buffer, bufferOffset, data as GPUAllowSharedBufferSource, dataOffset, size);
      return;
    }
    const unit = 'BYTES_PER_ELEMENT' in view ? (view.BYTES_PER_ELEMENT as number) : 1;
    const start = view.byteOffset + (dataOffset ?? 0) * unit;
    const length = size === undefined ? view.byteLength - (dataOffset ?? 0) * unit : size * unit;
    writeBuffer.call(this, buffer, bufferOffset, new Uint8Array(view.buffer, start, length).slice());
  };
}
