import type { Tensor } from 'onnxruntime-common';
import { tensorType } from './element-types.js';
import type { ModelProto, ValueInfoProto } from './onnx_pb.js';

/** An input or output of a model. */
export interface ValueSignature {
  readonly name: string;
  /** Sizes by number where fixed, by name where not; a size with neither is ''. */
  readonly dims: readonly (number | string)[];
  /** Undefined for sequences, maps and element types onnxruntime-common has no tensors of. */
  readonly type: Tensor.Type | undefined;
}

/** The inputs a caller must feed: the graph's inputs that no initializer gives a value. */
export function modelInputs(model: ModelProto): ValueSignature[] {
  const defaults = new Set(model.graph?.initializer.map((tensor) => tensor.name));
  return (model.graph?.input ?? []).filter((input) => !defaults.has(input.name)).map(signature);
}

/** The outputs of a model. */
export function modelOutputs(model: ModelProto): ValueSignature[] {
  return (model.graph?.output ?? []).map(signature);
}

function signature({ name, type }: ValueInfoProto): ValueSignature {
  const tensor = type?.value.case === 'tensorType' ? type.value.value : undefined;
  const dims = (tensor?.shape?.dim ?? []).map(({ value }) => {
    if (value.case === 'dimValue') return Number(value.value);
    return value.case === 'dimParam' ? value.value : '';
  });
  return { name, dims, type: tensor && tensorType(tensor.elemType) };
}
