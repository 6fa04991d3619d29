export { type WebgpuBackendOptions, webgpuBackend } from './backend.js';
