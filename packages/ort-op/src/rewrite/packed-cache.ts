import { create } from '@bufbuild/protobuf';
import type { AttentionSummary } from '../find/index.js';
import { floatAttribute } from '../model/attributes.js';
import { attributes, NodeList } from '../model/build.js';
import { bandOf, fusedDomain, noBias, precisionInput } from '../model/fused-operator.js';
import { DataType, type ModelProto, type NodeProto, opsets } from '../model/index.js';
import { copy } from '../model/messages.js';
import { OperatorSetIdProtoSchema } from '../model/onnx_pb.js';
import { inOrder } from '../model/order.js';
import { halves } from './bias.js';
import { type CacheLayer, type CachelessModel, type NewTokens, withoutCache } from './cache-joins.js';
import { merged } from './targets/contrib.js';

const domain = 'com.microsoft';

/** An attention that a node of ONNX Runtime stands for without computing it. */
export interface PackedAttention extends CacheLayer {
  readonly heads: number;
  readonly scale: number;
  /** Whether a query sees no later key. */
  readonly causal: boolean;
  /** Keys before a query that it sees; -1 for all. */
  readonly windowLeft: number;
  readonly bias: boolean;
  /** Of query, new keys and values, bias and output; the cache's tensors may be of another one. */
  readonly operandType: 'float32' | 'float16';
}

/** A model whose attentions take new tokens alone, as something else keeps the past ones. */
export interface PackedCacheModel extends CachelessModel {
  readonly attentions: readonly PackedAttention[];
}

/**
 * Takes the key/value cache out of a converted model, and puts a GroupQueryAttention of ONNX Runtime in the place of every
 * FusedAttention. It gets the new tokens' query, keys and values, and what is added to the scores of all keys; its scale is
 * the layer's {@link packedScale}. ONNX Runtime would compute something else: it is for kernels that run in its place. The
 * model itself stays as it is.
 *
 * @param replaced The attentions, all of which must have become nodes of the model's main graph.
 * @returns The model, or the reason why the cache stays a matter of tensors.
 */
export function withPackedCache(
  model: ModelProto,
  replaced: readonly AttentionSummary[],
): PackedCacheModel | { readonly reason: string } {
  const attentions: PackedAttention[] = [];
  const shared = new SharedValues(opsets(model).get('') ?? 1);
  const cacheless = withoutCache(model, (node, added, cache) => {
    const layer = attentions.length;
    const { heads = 0 } = replaced[layer] ?? {};
    const { left, right } = bandOf(node);
    const bias = node.input[3] !== noBias;
    const scale = floatAttribute(node, 'scale', 1);
    attentions.push({
      ...cache,
      heads,
      scale,
      causal: right === 0,
      windowLeft: left,
      bias,
      operandType: added.elementType,
    });
    return carrierNodes(node, added, layer, attentions[layer]!, shared);
  });
  if ('reason' in cacheless) return cacheless;
  if (attentions.length !== replaced.length) return { reason: 'an attention is in a body of If or Loop' };
  const obstacle = replaced
    .map((summary, layer) => attentionObstacle(summary, attentions[layer]!))
    .find(Boolean);
  if (obstacle !== undefined) return { reason: obstacle };
  const { graph } = cacheless.model;
  const imported = model.opsetImport.filter((each) => each.domain !== fusedDomain);
  return {
    ...cacheless,
    attentions,
    model: copy(cacheless.model, {
      graph: inOrder(
        copy(graph!, {
          input: graph!.input.filter(({ name }) => name !== precisionInput),
          initializer: graph!.initializer.filter(({ name }) => name !== precisionInput && name !== noBias),
        }),
      ),
      functions: model.functions.filter((each) => each.domain !== fusedDomain),
      opsetImport: imported.some((each) => each.domain === domain)
        ? imported
        : [...imported, create(OperatorSetIdProtoSchema, { domain, version: 1n })],
    }),
  };
}

/** The scale of the node of a layer: a number by which its programs are known, and that no attention has. */
export function packedScale(layer: number): number {
  return -1 - layer;
}

/** The layer whose node has this scale; undefined for the scale of an attention. */
export function packedLayer(scale: number): number | undefined {
  return scale < 0 ? -1 - scale : undefined;
}

function attentionObstacle(
  { heads, softcap, output }: AttentionSummary,
  { headSize, valueHeadSize, kvHeads, causal, windowLeft }: PackedAttention,
): string | undefined {
  if (heads === undefined || heads % kvHeads !== 0) return `the number of heads of ${output} is unknown`;
  if (headSize !== valueHeadSize) return `keys and values of ${output} have heads of different sizes`;
  if (softcap !== 0) return `scores of ${output} are soft-capped`;
  return windowLeft >= 0 && !causal ? `${output} has a window and sees later keys` : undefined;
}

/** Values that several layers use, computed once. */
class SharedValues {
  private readonly known = new Map<string, string>();

  constructor(readonly opset: number) {}

  get(key: string, compute: () => string): string {
    const value = this.known.get(key) ?? compute();
    this.known.set(key, value);
    return value;
  }
}

function carrierNodes(
  { input, output }: NodeProto,
  added: NewTokens,
  layer: number,
  { heads, kvHeads, pastKey, bias, operandType }: PackedAttention,
  shared: SharedValues,
): NodeProto[] {
  const list = new NodeList(`mxattn.${layer}.packed.`, shared.opset);
  const query = input[0]!;
  const length = shared.get('length', () => list.sizes(query, 2, 3));
  // A bias has room for all keys. ONNX Runtime asks that there be as many as it says.
  const total = bias
    ? shared.get('total', () => list.add('Add', [list.sizes(pastKey, 2, 3), length]))
    : length;
  const lengths = shared.get(`lengths ${bias}`, () => {
    const last = list.cast(list.add('Sub', [total, list.ints(1)]), undefined, DataType.INT32);
    return list.add('Expand', [last, list.sizes(query, 0, 1)]);
  });
  const longest = shared.get(`longest ${bias}`, () =>
    list.cast(list.add('Squeeze', [total]), undefined, DataType.INT32),
  );
  const forEach = bias
    ? shared.get(`bias ${input[3]} ${operandType}`, () => {
        const numbers = operandType === 'float16' ? halves(list, input[3]!) : input[3]!;
        return list.add('Expand', [numbers, list.concat(list.ints(1, 1), length, total)]);
      })
    : undefined;
  const name = `GroupQueryAttention_${layer}`;
  list.push({
    opType: 'GroupQueryAttention',
    domain,
    name,
    input: [
      ...[query, added.key, added.value].map((each) => merged(list, each)),
      ...['', '', lengths, longest],
      ...(forEach === undefined ? [] : ['', '', '', forEach]),
    ],
    output: [`${name}.mixed`, `${name}.present_key`, `${name}.present_value`],
    attribute: [
      attributes.int('num_heads', heads),
      attributes.int('kv_num_heads', kvHeads),
      attributes.float('scale', packedScale(layer)),
    ],
  });
  const split = list.add('Reshape', [`${name}.mixed`, list.ints(0, 0, heads, -1)]);
  list.add('Transpose', [split], [attributes.ints('perm', [0, 2, 1, 3])], output[0]);
  return list.nodes;
}
