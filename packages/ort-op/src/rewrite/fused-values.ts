import { create } from '@bufbuild/protobuf';
import { floatAttribute, intAttribute } from '../model/attributes.js';
import { bandOf, fusedDomain, fusedOperator, noBias } from '../model/fused-operator.js';
import type { ModelProto } from '../model/index.js';
import { copy } from '../model/messages.js';
import { ValueInfoProtoSchema } from '../model/onnx_pb.js';

/** The values of one FusedAttention of a converted model, by name. */
export interface FusedValues {
  readonly layer: number;
  readonly query: string;
  readonly key: string;
  readonly value: string;
  /** Undefined where nothing is added to the scores. */
  readonly bias: string | undefined;
  readonly output: string;
  readonly scale: number;
  /** 0 where there is none. */
  readonly softcap: number;
  /** Keys that a query sees before and after its own position; -1 for all. */
  readonly window: { readonly left: number; readonly right: number };
}

/** What the FusedAttention nodes of a converted model read and write; those in bodies of If and Loop are left out. */
export function fusedValues(model: ModelProto): FusedValues[] {
  const nodes = (model.graph?.node ?? []).filter(
    ({ domain, opType }) => domain === fusedDomain && opType === fusedOperator,
  );
  return nodes.map((node) => {
    const [query, key, value, bias] = node.input as [string, string, string, string];
    return {
      layer: intAttribute(node, 'layer', 0),
      query,
      key,
      value,
      bias: bias === noBias ? undefined : bias,
      output: node.output[0]!,
      scale: floatAttribute(node, 'scale', 1),
      softcap: floatAttribute(node, 'softcap', 0),
      window: bandOf(node),
    };
  });
}

/** The model with these values of its main graph among its outputs. The model itself stays as it is. */
export function withOutputs(model: ModelProto, names: Iterable<string>): ModelProto {
  const graph = model.graph!;
  const known = new Set([...graph.output, ...graph.input].map(({ name }) => name));
  const added = [...new Set(names)]
    .filter((name) => !known.has(name))
    // The runtime knows the type.
    .map((name) => create(ValueInfoProtoSchema, { name }));
  return copy(model, { graph: copy(graph, { output: [...graph.output, ...added] }) });
}
