import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';

/** Folders that the page fetches from, by their path under its address. */
export const FOLDERS: Readonly<Record<string, { readonly folder: string; readonly files?: RegExp }>> = {
  models: { folder: fileURLToPath(new URL('../../models', import.meta.url)) },
  // The WebAssembly of the very copy that the page imports.
  ort: {
    folder: dirname(fileURLToPath(import.meta.resolve('onnxruntime-web/webgpu'))),
    files: /^ort-wasm-simd-threaded\.asyncify\.(mjs|wasm)$/,
  },
};
