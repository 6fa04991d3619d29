export { type WebgpuBackendOptions, webgpuBackend } from './backend.js';
export { describeAdapter, type GpuDescription } from './describe.js';
export {
  type Dispatch,
  fingerprint,
  type Interception,
  interceptDispatches,
  type PassRecorder,
  type Program,
  type Replacement,
  type Replacements,
} from './inplace/index.js';
export { KvCache, type KvCacheShape, type TokenBuffers } from './kv-cache.js';
export {
  type AttentionBuffers,
  type AttentionPlan,
  type Extras,
  type PlanOptions,
  planAttention,
} from './plan.js';
export { requestKernelDevice } from './request.js';
export type { ElementType } from './shape-class.js';
export { encode, type Step } from './steps.js';
