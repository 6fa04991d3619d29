import type { DataType } from './element-types.js';
import type { NodeProto, TypeProto, ValueInfoProto } from './onnx_pb.js';
import { type Dim, freshSymbol, type Scalar } from './symbols.js';

/**
 * What is known about a value before the model runs. `values` are the elements of a small tensor, in
 * row-major order: constants, shapes and what is computed from them.
 */
export interface Fact {
  readonly type?: DataType | undefined;
  readonly dims?: readonly Dim[] | undefined;
  readonly values?: readonly Scalar[] | undefined;
}

/** The fact about a value of which nothing is known. */
export const nothing: Fact = {};

/** A node with the facts about its inputs, as the inference rules see it. */
export interface NodeFacts {
  readonly node: NodeProto;
  /** Version of the node's operator set. */
  readonly opset: number;
  /** The fact about an input; {@link nothing} for one that is absent. */
  input(index: number): Fact;
}

/** The facts about the outputs of one kind of node. */
export type Rule = (at: NodeFacts) => Fact | readonly Fact[];

/** The elements as numbers, if all are known. */
export function numbers(fact: Fact): number[] | undefined {
  const values = fact.values;
  return values?.every((value) => typeof value === 'number') ? (values as number[]) : undefined;
}

/** The number in a tensor of one known element. */
export function scalar(fact: Fact): number | undefined {
  const values = numbers(fact);
  return values?.length === 1 ? values[0] : undefined;
}

/** What the declaration of an input, output or inner value says. */
export function declaredFact(info: ValueInfoProto): Fact {
  return info.type ? typeFact(info.type) : nothing;
}

function typeFact(type: TypeProto): Fact {
  if (type.value.case !== 'tensorType') return nothing;
  const tensor = type.value.value;
  const dims = tensor.shape?.dim.map(({ value }): Dim => {
    if (value.case === 'dimValue') return Number(value.value);
    return value.case === 'dimParam' && value.value !== '' ? value.value : freshSymbol();
  });
  return { type: tensor.elemType || undefined, dims };
}

/** Both facts about one value together; sizes as numbers where either knows the number. */
export function merge(inferred: Fact, declared: Fact | undefined): Fact {
  if (!declared) return inferred;
  const { dims } = inferred;
  const other = declared.dims;
  return {
    type: inferred.type ?? declared.type,
    dims:
      dims && other?.length === dims.length
        ? dims.map((dim, axis) =>
            typeof dim === 'string' && typeof other[axis] === 'number' ? other[axis] : dim,
          )
        : (dims ?? other),
    values: inferred.values,
  };
}
