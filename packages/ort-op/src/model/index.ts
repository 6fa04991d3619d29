export { bodies, floatAttribute, intAttribute, intsAttribute, stringAttribute } from './attributes.js';
export { DataType, isComputed, tensorType } from './element-types.js';
export type { Fact } from './facts.js';
export { GraphIndex, type Opsets, opsets } from './graph-index.js';
export type { GraphProto, ModelProto, NodeProto, TensorProto } from './onnx_pb.js';
export { type ModelSource, readModel, writeModel } from './read.js';
export { modelInputs, modelOutputs, type ValueSignature } from './signature.js';
export type { Dim } from './symbols.js';
export { smallTensor } from './tensors.js';
