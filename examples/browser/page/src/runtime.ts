import { env } from '@huggingface/transformers';
import type { WebSessionOptions } from '@mxattn/ort-op/web';
import * as onnxruntime from 'onnxruntime-web/webgpu';
import { address } from './address.js';

/** The ONNX Runtime of this page, which transformers.js uses, too. */
export const ort = onnxruntime as unknown as WebSessionOptions['ort'];

/** Makes everything come from this page's own site. */
export function useLocalFiles(): void {
  env.allowRemoteModels = false;
  env.allowLocalModels = true;
  env.localModelPath = address('models/');
  env.useBrowserCache = false;
  env.useWasmCache = false;
  const program = address('ort/ort-wasm-simd-threaded.asyncify');
  const paths = { mjs: `${program}.mjs`, wasm: `${program}.wasm` };
  ort.env.wasm.wasmPaths = paths;
  Object.assign(env.backends.onnx.wasm ?? {}, { wasmPaths: paths });
}
