export { type WebgpuBackendOptions, webgpuBackend } from './backend.js';
export { KvCache, type KvCacheShape, type TokenBuffers } from './kv-cache.js';
export { encode, type Step } from './steps.js';
