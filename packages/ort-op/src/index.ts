export {
  type AttentionSummary,
  type Attentions,
  type FoundAttention,
  findAttention,
  type LeftAttention,
} from './find/index.js';
export {
  DataType,
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
export {
  type ConversionReport,
  type ConvertOptions,
  convertModel,
  fusedDomain,
  fusedOperator,
  precisionInput,
  type TargetName,
} from './rewrite/index.js';
