export {
  type AttentionSummary,
  type Attentions,
  type FoundAttention,
  findAttention,
  type LeftAttention,
} from './find/index.js';
export {
  DataType,
  externalFiles,
  type GraphProto,
  type ModelProto,
  type ModelSource,
  modelInputs,
  modelOutputs,
  type NodeProto,
  readModel,
  type ValueSignature,
  writeModel,
} from './model/index.js';
export type { GpuFacts, NativeFeed, NativeSession } from './native/addon.js';
export { nativeBackend } from './native/backend.js';
export { customOpLibrary } from './native/custom-op-library.js';
export { gpuCompiler, type HipBackend, hipBackend, listGpus } from './native/gpus.js';
export { addonStatus, isaLevels } from './native/isa.js';
export { measurePeaks, openNativeSession } from './native/session.js';
export {
  type ConversionReport,
  type ConvertOptions,
  convertModel,
  type FusedValues,
  fusedDomain,
  fusedOperator,
  fusedValues,
  precisionInput,
  storedSchedule,
  type TargetName,
  type TokenCount,
  withOutputs,
  withPrecisions,
} from './rewrite/index.js';
export type { KvCacheFormat } from './session/cache-format.js';
export { kvCacheBytes } from './session/cache-tensors.js';
export { createSession } from './session/create.js';
export type { SessionDevice } from './session/device.js';
export type { MxattnSessionOptions, SessionBackend } from './session/options.js';
export type { SessionReport } from './session/report.js';
export type { Fetches, MxattnRunOptions } from './session/run-options.js';
export { findRuntime, type Runtime } from './session/runtime.js';
export type { MxattnSession } from './session/types.js';
