export * from './attention/attention.js';
export { type Backend, backendNames, registerBackend } from './attention/backend.js';
export { additiveBias, broadcastStrides } from './attention/bias.js';
export {
  type AttentionTrace,
  attentionTrace,
  type EmulationOptions,
  emulateAttention,
} from './attention/emulation.js';
export { referenceAttention } from './attention/reference.js';
export * from './attention/spec.js';
export { type AttentionTensors, checkTensors, type ScoreTensor } from './attention/tensors.js';
export {
  type CalibrationOptions,
  calibrate,
  type EfqCalibration,
  efqPipeline,
} from './calibration/efq.js';
export { type ScoreSample, scoreSamples } from './calibration/sample.js';
export { MxattnError } from './errors.js';
export * from './formats/align.js';
export * from './formats/block.js';
export * from './formats/e8m0.js';
export * from './formats/element.js';
export * from './formats/hadamard.js';
export * from './formats/half.js';
export * from './formats/pack.js';
export * from './formats/scale.js';
export * from './formats/view.js';
export * from './precision/recipes.js';
export * from './schedule/build.js';
export * from './schedule/picture.js';
export {
  type IndexRange,
  type Phase,
  Schedule,
  type ScheduleJson,
  type SchedulePosition,
  type ScheduleRule,
  segments,
} from './schedule/schedule.js';
export * from './softmax/pipeline.js';
export { type RowSoftmax, type RowTrace, rowSoftmax } from './softmax/row.js';
export { type WasmBackendOptions, wasmBackend, wasmRecipes } from './wasm/backend.js';
export type { WasmBuild } from './wasm/kernel.js';
