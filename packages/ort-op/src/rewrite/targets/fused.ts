import { create } from '@bufbuild/protobuf';
import type { Band, FoundAttention } from '../../find/index.js';
import { attributes } from '../../model/build.js';
import { fusedDomain, fusedOperator, noBias, precisionInput } from '../../model/fused-operator.js';
import { DataType, type ModelProto, opsets } from '../../model/index.js';
import { copy } from '../../model/messages.js';
import { type AttributeProto, ValueInfoProtoSchema } from '../../model/onnx_pb.js';
import { tensorProto } from '../../model/tensors.js';
import { withoutBand } from '../band.js';
import { biasObstacle } from '../bias.js';
import { operandValue } from '../operand.js';
import { fusedAttentionBody } from './fused-body.js';
import type { Target } from './target.js';

/**
 * The FusedAttention operator of mxattn. The model also gets a function of that name made of standard
 * operators, so that it runs in a runtime that does not know the operator.
 */
export const fused: Target = {
  obstacle: biasObstacle,

  // The function body asks for integer attributes with a form of Constant that came with that operator set.
  masksBand: ({ graph }) => (graph.opsets.get('') ?? 1) >= 12,

  emit(list, attention, { layer, output, bias = noBias, band }) {
    const { scale, softcap, type } = attention;
    const inner = typeOfCall(attention, list.opset);
    const operands = [attention.query, attention.key, attention.value].map((each) =>
      list.cast(operandValue(list, each), type, inner),
    );
    const result = inner === type ? output : `mxattn.${layer}.float32`;
    list.push({
      opType: fusedOperator,
      domain: fusedDomain,
      name: `${fusedOperator}_${layer}`,
      input: [...operands, bias, precisionInput],
      output: [result],
      attribute: [
        attributes.float('scale', scale),
        attributes.int('layer', layer),
        ...(softcap === 0 ? [] : [attributes.float('softcap', softcap)]),
        ...(band ? bandAttributes(band) : []),
      ],
    });
    if (inner !== type) list.add('Cast', [result], [attributes.int('to', type)], output);
  },

  additions(model, replaced) {
    const layers = replaced.length;
    const opset = opsets(model).get('') ?? 1;
    const calls = replaced.map((each) => ({ ...each, type: typeOfCall(each, opset) }));
    const anyWithoutBias = replaced.some((each) => withoutBand(fused, each).rest.bias.length === 0);
    return {
      inputs: [
        create(ValueInfoProtoSchema, {
          name: precisionInput,
          type: {
            value: {
              case: 'tensorType',
              value: {
                elemType: DataType.INT32,
                shape: { dim: [{ value: { case: 'dimValue', value: BigInt(layers) } }] },
              },
            },
          },
        }),
      ],
      initializers: [
        tensorProto(DataType.INT32, [layers], Array<number>(layers).fill(0), precisionInput),
        // A runtime warns of initializers that nothing uses.
        ...(anyWithoutBias ? [tensorProto(DataType.FLOAT, [1], [0], noBias)] : []),
      ],
      functions: [fusedAttentionBody(opset, calls)],
      opsets: [{ domain: fusedDomain, version: 1 }],
      irVersion: 8,
    };
  },
};

function bandAttributes({ left, right }: Band): AttributeProto[] {
  return [
    ...(right === 0 ? [attributes.int('causal', 1)] : []),
    ...(right > 0 ? [attributes.int('window_right', right)] : []),
    ...(left >= 0 ? [attributes.int('window_left', left)] : []),
  ];
}

/**
 * The element type that an attention calls the operator with. The function body needs CastLike to give float16 back,
 * which came with operator set 15.
 */
function typeOfCall({ type }: FoundAttention, opset: number): DataType {
  return opset >= 15 ? type : DataType.FLOAT;
}

/**
 * A converted model whose precision must be fed: for a session that always feeds it. ONNX Runtime warns of inputs that
 * have a default.
 */
export function withoutPrecisionDefault(model: ModelProto): ModelProto {
  const graph = model.graph!;
  const initializer = graph.initializer.filter((tensor) => tensor.name !== precisionInput);
  return copy(model, { graph: copy(graph, { initializer }) });
}
