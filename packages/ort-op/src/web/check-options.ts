import { MxattnError, type Schedule, wasmRecipes } from '@mxattn/core';
import { webgpuRecipes } from '../webgpu/operand-format.js';
import { CACHE_FORMAT } from './inplace-attention.js';
import type { WebBackend, WebSessionOptions } from './options.js';

const BACKENDS: readonly string[] = ['auto', 'inplace', 'split', 'carrier', 'stock'] satisfies WebBackend[];
const WASM_BACKENDS: readonly string[] = ['auto', 'split', 'stock'] satisfies WebBackend[];

/** @throws MxattnError for a backend or execution provider that there is not, or a precision that the kernels do not have. */
export function checkOptions(plan: Schedule, backend: string, executionProvider: string): void {
  if (executionProvider !== 'webgpu' && executionProvider !== 'wasm') {
    throw new MxattnError(`unknown executionProvider "${executionProvider}"; there are webgpu, wasm`);
  }
  const wasm = executionProvider === 'wasm';
  const backends = wasm ? WASM_BACKENDS : BACKENDS;
  if (!backends.includes(backend)) {
    const where = wasm ? ' on WebAssembly' : '';
    throw new MxattnError(`unknown backend "${backend}"${where}; there are ${backends.join(', ')}`);
  }
  const names = (wasm ? wasmRecipes : webgpuRecipes).map(({ name }) => name);
  const missing = plan.precisions.find((name) => !names.includes(name));
  if (missing) {
    throw new MxattnError(
      `the ${wasm ? 'WebAssembly' : 'WebGPU'} kernels do not have precision ${missing}; they have ${names.join(', ')}`,
    );
  }
}

/** @throws MxattnError for a packed cache that there is not. */
export function checkCacheOptions({ kvCache = 'packed', kvCacheFormat }: WebSessionOptions): void {
  if (kvCache !== 'packed' && kvCache !== 'tensors') {
    throw new MxattnError(`unknown kvCache "${kvCache as string}"; there are packed, tensors`);
  }
  if (kvCacheFormat === undefined) return;
  if (kvCache === 'tensors') {
    throw new MxattnError("kvCacheFormat is for packed caches; leave it out, or kvCache: 'tensors'");
  }
  if (kvCacheFormat !== CACHE_FORMAT) {
    throw new MxattnError(
      `the packed cache on WebGPU is ${CACHE_FORMAT}, not ${kvCacheFormat}; leave kvCacheFormat out`,
    );
  }
}
