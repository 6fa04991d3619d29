import { create } from '@bufbuild/protobuf';
import { MxattnError } from '@mxattn/core';
import { findIn, nameOf, openModel } from '../find/find.js';
import type { AttentionSummary, FoundAttention, LeftAttention } from '../find/index.js';
import { summaryOf } from '../find/summary.js';
import {
  DataType,
  GraphIndex,
  type ModelProto,
  type ModelSource,
  opsets,
  readModel,
} from '../model/index.js';
import { copy } from '../model/messages.js';
import { OperatorSetIdProtoSchema, ValueInfoProtoSchema } from '../model/onnx_pb.js';
import { inOrder } from '../model/order.js';
import { Biases } from './bias.js';
import { isConverted, reportConverted } from './converted.js';
import { Edits } from './edits.js';
import { replaceAttention } from './replace.js';
import { attention } from './targets/attention.js';
import { contrib } from './targets/contrib.js';
import { fused } from './targets/fused.js';
import type { Target } from './targets/target.js';

/** What attentions can be replaced by. */
export type TargetName = keyof typeof targets;

const targets = { fused, contrib, attention } satisfies Record<string, Target>;

/** How {@link convertModel} converts. */
export interface ConvertOptions {
  /**
   * `fused` (default): the FusedAttention operator. `contrib`: GroupQueryAttention or MultiHeadAttention of ONNX
   * Runtime. `attention`: the Attention operator of ONNX 23.
   */
  readonly target?: TargetName;
  /** Also replace attention between different activations. Default: false. */
  readonly crossAttention?: boolean;
  /**
   * Take it that in a GroupQueryAttention with a cache all entries of the batch have as many tokens as the cache has places:
   * it then becomes a plain join. What is taken for granted has to be checked at every run, see {@link TokenCount}. Default:
   * false.
   */
  readonly unpaddedCaches?: boolean;
}

/** What a conversion with `unpaddedCaches` takes for granted at a node. */
export interface TokenCount {
  /** Name of the GroupQueryAttention, the first one of several with the same lengths. */
  readonly node: string;
  /**
   * Input or output of the converted model, int32 with one element for each entry of the batch: its `seqlens_k`, which has to be
   * the length of the node's `present` outputs less one.
   */
  readonly lengths: string;
}

/** What was replaced in a model and what was not. */
export interface ConversionReport {
  readonly replaced: readonly AttentionSummary[];
  readonly left: readonly LeftAttention[];
}

/**
 * Replaces the attentions of a model. All else stays as it is, external data included: its locations remain
 * relative to the folder of the original file. The model passed in is not changed; one with nothing to
 * replace, or with FusedAttention in it already, is returned itself.
 */
export function convertModel(
  source: ModelSource | ModelProto,
  options: ConvertOptions = {},
): {
  model: ModelProto;
  report: ConversionReport;
  tokenCounts: readonly TokenCount[];
} {
  const original = typeof source === 'string' || source instanceof Uint8Array ? readModel(source) : source;
  const target = targetNamed(options.target ?? 'fused');
  if (isConverted(original)) return { model: original, report: reportConverted(original), tokenCounts: [] };
  const model = openModel(original);
  const graph = model.graph;
  if (!graph) return { model: original, report: { replaced: [], left: [] }, tokenCounts: [] };
  const index = new GraphIndex(graph, opsets(model));
  const attentions = findIn(index, options);
  const replaced: FoundAttention[] = [];
  const left: LeftAttention[] = [...attentions.left];
  const edits = new Edits();
  const biases = new Biases();
  for (const attention of attentions.found) {
    const reason =
      attention.selfAttention || options.crossAttention
        ? target.obstacle(attention)
        : 'it is cross-attention: query and key are projections of different activations';
    if (reason !== undefined) {
      left.push({ node: nameOf(attention.anchor), reason });
      continue;
    }
    replaceAttention(edits, target, attention, { layer: replaced.length, biases });
    replaced.push(attention);
  }
  const report = { replaced: replaced.map((each, layer) => summaryOf(each, layer)), left };
  if (replaced.length === 0) return { model: original, report, tokenCounts: [] };

  const additions = target.additions(model, replaced);
  const tokenCounts = tokenCountsOf(replaced);
  const outputs = tokenCounts
    .filter(({ lengths }) => !index.isInput(lengths) && !index.isOutput(lengths))
    // The runtime knows the shape.
    .map(({ lengths: name }) => create(ValueInfoProtoSchema, { name, type: int32 }));
  return {
    model: copy(model, {
      // A mask that layers share is computed where the first of them ends, which may be behind another.
      graph: inOrder(edits.apply(index, { ...additions, outputs })),
      functions: [...model.functions, ...additions.functions],
      opsetImport: [
        ...model.opsetImport,
        ...additions.opsets.map(({ domain, version }) =>
          create(OperatorSetIdProtoSchema, { domain, version: BigInt(version) }),
        ),
      ],
      irVersion: model.irVersion > additions.irVersion ? model.irVersion : BigInt(additions.irVersion),
    }),
    report,
    tokenCounts,
  };
}

const int32 = {
  value: { case: 'tensorType', value: { elemType: DataType.INT32 } },
} as const;

function tokenCountsOf(attentions: readonly FoundAttention[]): TokenCount[] {
  const nodes = new Map<string, string>();
  for (const { tokenCounts, anchor } of attentions) {
    if (tokenCounts !== undefined && !nodes.has(tokenCounts)) nodes.set(tokenCounts, nameOf(anchor));
  }
  return [...nodes].map(([lengths, node]) => ({ node, lengths }));
}

function targetNamed(name: string): Target {
  const target = (targets as Readonly<Record<string, Target>>)[name];
  if (target) return target;
  throw new MxattnError(`no target is named ${name}; there are ${Object.keys(targets).join(', ')}`);
}
