import { create } from '@bufbuild/protobuf';
import { floatAttribute, intAttribute } from '../model/attributes.js';
import { fusedDomain, fusedOperator, noBias } from '../model/fused-operator.js';
import { DataType, type ModelProto } from '../model/index.js';
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
    };
  });
}

/** The model with these float32 values of its main graph among its outputs. The model itself stays as it is. */
export function withOutputs(model: ModelProto, names: Iterable<string>): ModelProto {
  const graph = model.graph!;
  const known = new Set([...graph.output, ...graph.input].map(({ name }) => name));
  const added = [...new Set(names)]
    .filter((name) => !known.has(name))
    .map((name) =>
      create(ValueInfoProtoSchema, {
        name,
        type: { value: { case: 'tensorType', value: { elemType: DataType.FLOAT } } },
      }),
    );
  return copy(model, { graph: copy(graph, { output: [...graph.output, ...added] }) });
}
