/// <reference types="@webgpu/types" />
import { type AttentionSpec, attentionSpec } from '@mxattn/core';
import { packedLayer } from '../rewrite/index.js';
import type { Dispatch, Program } from '../webgpu/inplace/index.js';
import type { AttentionBuffers, Extras } from '../webgpu/plan.js';
import type { OperandLayouts } from '../webgpu/problem.js';
import type { ElementType } from '../webgpu/shape-class.js';
import type { NodeFeatures } from './carrier-nodes.js';

/**
 * ONNX Runtime's programs for fused attention, by the labels of their shader modules: one for many queries, a pair for few.
 * Their dispatches are what kernels of ours stand in for.
 */
export const carrierPrograms = {
  whole: 'FlashAttention',
  parts: 'FlashAttentionDecodeQKV',
  combination: 'FlashAttentionDecodeVxReduce',
} as const;

/** Before them: new keys and values, [batch, length, heads, size], go to where past ones are. */
export const copyProgram = 'CopyKVCache';

/** What is known of a program; a new version of ONNX Runtime whose programs differ gets another one of these. */
interface KnownProgram {
  /** Buffers by name, in any selection. T is the element type of the model's tensors, the same in all of them. */
  readonly bindings: Readonly<Record<string, string>>;
  readonly uniforms: string;
  /** The variable that ends the keys of a query, and how it does so without and with causality. */
  readonly keyEnd?: readonly [name: string, whole: string, causal: string];
}

const operands = {
  q: 'storage, read array<vec4<T>>',
  present_key: 'storage, read array<vec4<T>>',
  present_value: 'storage, read array<vec4<T>>',
  seqlens_k: 'storage, read array<i32>',
  attention_bias: 'storage, read array<T>',
  head_sink: 'storage, read array<T>',
  uniforms: 'uniform Uniforms',
};
const output = 'storage, read_write array<vec4<T>>';

/** Those of onnxruntime-web 1.30 and 1.31-dev. */
const knownPrograms: Readonly<Record<string, readonly KnownProgram[]>> = {
  [carrierPrograms.whole]: [
    {
      bindings: { ...operands, output },
      uniforms:
        'new_sequence_length total_sequence_length present_sequence_length batch_size n_reps alpha num_seq_tile ' +
        'attn_bias_dim0 attn_bias_dim1 attn_bias_dim3 local_window_size',
      keyEnd: ['seq_causal_length', 'total_sequence_length', 'past_sequence_length + q_idx_global + 1'],
    },
  ],
  [carrierPrograms.parts]: [
    {
      bindings: { ...operands, out_split_vx: output, metadata: 'storage, read_write array<vec2<f32>>' },
      uniforms:
        'head_size_vec total_sequence_length alpha present_sequence_length n_reps num_present_sequence_length_tile ' +
        'num_heads batch_size attn_bias_dim0 attn_bias_dim1 attn_bias_dim3 new_sequence_length',
      keyEnd: [
        'valid_key_end',
        'total_sequence_length',
        'min(total_sequence_length, past_sequence_length + q_idx + 1u)',
      ],
    },
  ],
  [copyProgram]: [
    {
      bindings: {
        key: operands.q,
        value: operands.q,
        seqlen_k: operands.seqlens_k,
        present_key: output,
        present_value: output,
        uniforms: operands.uniforms,
      },
      // Not all are scalars, and none is needed.
      uniforms: '',
    },
  ],
  [carrierPrograms.combination]: [
    {
      bindings: {
        input: 'storage, read array<vec4<T>>',
        metadata: 'storage, read array<vec2<f32>>',
        seqlens_k: operands.seqlens_k,
        head_sink: operands.head_sink,
        output,
        uniforms: operands.uniforms,
      },
      uniforms:
        'head_size_vec num_total_seq_length_tile num_present_sequence_length_tile num_head_size_tile batch_heads ' +
        'new_sequence_length num_heads',
    },
  ],
};

/** Query and output are [batch, length, heads, size], keys and values [batch, heads, capacity, size]. */
export const carrierLayouts: OperandLayouts = { query: 'BSHD', key: 'BHSD', value: 'BHSD', output: 'BSHD' };

/** An attention that dispatches are about to compute. */
export interface CarriedAttention {
  readonly spec: AttentionSpec;
  readonly extras: Extras;
  readonly buffers: Omit<AttentionBuffers, 'output' | 'sinks'>;
}

/** Where a dispatch of `whole` or `combination` puts the attention's output, and the sinks it adds. */
export type CarriedEnd = Pick<AttentionBuffers, 'output' | 'sinks'>;

/** The attention of a dispatch of {@link carrierPrograms} `whole` or `parts`, or why it is left to ONNX Runtime. */
export function carriedAttention(
  dispatch: Dispatch,
  { softcap, sinks, equalLengths }: NodeFeatures,
): CarriedAttention | string {
  const causal = isCausal(dispatch.program);
  if (typeof causal === 'string') return causal;
  const sizes = carriedSizes(dispatch);
  if (typeof sizes === 'string') return sizes;
  const { bias, ...rest } = sizes;
  // Entries of a batch may then have fewer keys, each its own number.
  if (dispatch.buffer('seqlens_k') && rest.batch !== 1 && !equalLengths) {
    return 'entries of the batch may have lengths of their own';
  }
  const query = whole(dispatch.buffer('q'));
  const key = whole(dispatch.buffer('present_key'));
  const value = whole(dispatch.buffer('present_value'));
  if (!query || !key || !value) return 'its buffers are parts of others';
  return {
    spec: attentionSpec({ ...rest, causal, softcap }),
    extras: { elementType: elementTypeOf(dispatch.program), biasStrides: bias?.strides ?? null, sinks },
    buffers: { query, key, value, ...(bias ? { bias: bias.buffer } : {}) },
  };
}

/** New tokens of an attention whose past ones are elsewhere. */
export interface CarriedTokens {
  readonly layer: number;
  readonly batch: number;
  readonly count: number;
  readonly query: GPUBuffer;
  readonly bias?: CarriedBias;
}

/** The layer that a dispatch of `whole` or `parts` stands for, if it is one of {@link withPackedCache}. */
export function carriedLayer(dispatch: Dispatch): number | undefined {
  return packedLayer(dispatch.uniform('alpha') ?? 0);
}

/** What such a dispatch knows of it, or why nothing. */
export function carriedTokens(dispatch: Dispatch, layer: number): CarriedTokens | string {
  const known = knownProgram(dispatch.program);
  if (typeof known === 'string') return known;
  const sizes = carriedSizes(dispatch);
  if (typeof sizes === 'string') return sizes;
  const query = whole(dispatch.buffer('q'));
  if (!query) return 'its buffers are parts of others';
  const { batch, queryLength: count, bias } = sizes;
  return { layer, batch, count, query, ...(bias ? { bias } : {}) };
}

/** The new keys and values of a dispatch of {@link copyProgram}, or why they are not known. */
export function carriedAdditions(dispatch: Dispatch): { key: GPUBuffer; value: GPUBuffer } | string {
  const known = knownProgram(dispatch.program);
  if (typeof known === 'string') return known;
  if (!dispatch.program.code.includes('key_indices_t(batch, sequence_id, num_head_id, head_size_id)')) {
    return `${copyProgram} takes its keys in an unknown order`;
  }
  const key = whole(dispatch.buffer('key'));
  const value = whole(dispatch.buffer('value'));
  return key && value ? { key, value } : 'its buffers are parts of others';
}

/** Added to the scores. */
export interface CarriedBias {
  readonly buffer: GPUBuffer;
  /** Steps in elements along [batch, heads, queryLength, keyLength]. */
  readonly strides: readonly [number, number, number, number];
}

function carriedSizes(dispatch: Dispatch) {
  const { program } = dispatch;
  const size = (name: string) => dispatch.uniform(name) ?? program.constants.get(name) ?? Number.NaN;
  const [biasBatch, biasHeads, biasKeys] = [0, 1, 3].map((axis) => size(`attn_bias_dim${axis}`)) as [
    number,
    number,
    number,
  ];
  const heads = size('num_heads');
  const sizes = {
    batch: size('batch_size'),
    heads,
    kvHeads: heads / size('n_reps'),
    queryLength: size('new_sequence_length'),
    keyLength: size('total_sequence_length'),
    keyCapacity: size('present_sequence_length'),
    headSize: program.constants.get('head_size') ?? 4 * size('head_size_vec'),
    scale: size('alpha'),
  };
  if ([...Object.values(sizes), biasKeys].some(Number.isNaN))
    return 'its sizes are not known when it is recorded';
  const buffer = whole(dispatch.buffer('attention_bias'));
  if (buffer === null) return 'its buffers are parts of others';
  const rows = sizes.queryLength * biasKeys;
  const strides = [biasBatch === 1 ? 0 : biasHeads * rows, biasHeads === 1 ? 0 : rows, biasKeys, 1] as const;
  return { ...sizes, bias: buffer && { buffer, strides } };
}

/** The end of an attention in a dispatch of `whole` or `combination`, or why it is not known. */
export function carriedEnd(dispatch: Dispatch): CarriedEnd | string {
  const known = knownProgram(dispatch.program);
  if (typeof known === 'string') return known;
  const output = whole(dispatch.buffer('output'));
  const sinks = whole(dispatch.buffer('head_sink'));
  if (!output || sinks === null) return 'its buffers are parts of others';
  return { output, ...(sinks ? { sinks } : {}) };
}

/** Whether a program masks the keys behind each query, or why it is not known well enough to be replaced. */
function isCausal(program: Program): boolean | string {
  const known = knownProgram(program);
  if (typeof known === 'string') return known;
  const [name, all, causal] = known.keyEnd ?? [];
  const ends = [...program.code.matchAll(new RegExp(`let ${name} = ([^;]+);`, 'g'))].map(([, end]) => end);
  if (program.code.includes('tanh')) return 'its scores are soft-capped';
  if (/let local_window_start = (?!0u;)/.test(program.code)) return 'it has a window';
  if (ends.includes(causal)) return true;
  return ends.length > 0 && ends.every((end) => end === all)
    ? false
    : 'it masks by position in an unknown way';
}

/** Of the tensors that a program reads and writes, if it is a known one. */
function elementTypeOf({ bindings }: Program): ElementType {
  return bindings.some(({ type }) => type.includes('f16')) ? 'float16' : 'float32';
}

function knownProgram(program: Program): KnownProgram | string {
  const { label, bindings, uniforms } = program;
  const names = uniforms.map(({ name }) => name).join(' ');
  const known = knownPrograms[label]?.find((each) => each.uniforms === names);
  if (!known) return `the uniforms of ${label} are ${names}`;
  const element = elementTypeOf(program) === 'float16' ? 'f16>' : 'f32>';
  const unknown = bindings.find(
    ({ name, space, type }) => known.bindings[name]?.replace('T>', element) !== `${space} ${type}`,
  );
  return unknown ? `${label} has a buffer ${unknown.name}: ${unknown.space} ${unknown.type}` : known;
}

/** The buffer of a binding that begins at its start; null for others. */
function whole(binding: GPUBufferBinding | undefined): GPUBuffer | null | undefined {
  if (!binding) return undefined;
  return (binding.offset ?? 0) === 0 ? binding.buffer : null;
}
