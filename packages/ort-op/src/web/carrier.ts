/// <reference types="@webgpu/types" />
import { type AttentionSpec, attentionSpec } from '@mxattn/core';
import type { Dispatch, Program } from '../webgpu/inplace/index.js';
import type { AttentionBuffers, Extras } from '../webgpu/plan.js';
import type { OperandLayouts } from '../webgpu/problem.js';
import type { ElementType } from '../webgpu/shape-class.js';

/**
 * ONNX Runtime's programs for fused attention, by the labels of their shader modules: one for many queries, a pair for few.
 * Their dispatches are what kernels of ours stand in for.
 */
export const carrierPrograms = {
  whole: 'FlashAttention',
  parts: 'FlashAttentionDecodeQKV',
  combination: 'FlashAttentionDecodeVxReduce',
} as const;

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
  [carrierPrograms.combination]: [
    {
      bindings: {
        input: 'storage, read array<vec4<T>>',
        metadata: 'storage, read array<vec2<f32>>',
        seqlens_k: operands.seqlens_k,
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
  readonly buffers: Omit<AttentionBuffers, 'output'>;
}

/** The attention of a dispatch of {@link carrierPrograms} `whole` or `parts`, or why it is left to ONNX Runtime. */
export function carriedAttention(dispatch: Dispatch): CarriedAttention | string {
  const { program } = dispatch;
  const causal = isCausal(program);
  if (typeof causal === 'string') return causal;
  const size = (name: string) => dispatch.uniform(name) ?? program.constants.get(name) ?? Number.NaN;
  const queryLength = size('new_sequence_length');
  const keyLength = size('total_sequence_length');
  const batch = size('batch_size');
  const heads = size('num_heads');
  const headSize = program.constants.get('head_size') ?? 4 * size('head_size_vec');
  const [biasBatch, biasHeads, biasKeys] = [0, 1, 3].map((axis) => size(`attn_bias_dim${axis}`)) as [
    number,
    number,
    number,
  ];
  const kvHeads = heads / size('n_reps');
  const keyCapacity = size('present_sequence_length');
  const scale = size('alpha');
  if ([queryLength, keyLength, batch, headSize, kvHeads, keyCapacity, scale, biasKeys].some(Number.isNaN)) {
    return 'its sizes are not known when it is recorded';
  }
  // Entries of a batch may then have fewer keys, each its own number.
  if (dispatch.buffer('seqlens_k') && batch !== 1) return 'entries of the batch have lengths of their own';
  const query = whole(dispatch.buffer('q'));
  const key = whole(dispatch.buffer('present_key'));
  const value = whole(dispatch.buffer('present_value'));
  const bias = whole(dispatch.buffer('attention_bias'));
  if (!query || !key || !value || bias === null) return 'its buffers are parts of others';
  const rows = queryLength * biasKeys;
  const biasStrides = [
    biasBatch === 1 ? 0 : biasHeads * rows,
    biasHeads === 1 ? 0 : rows,
    biasKeys,
    1,
  ] as const;
  return {
    spec: attentionSpec({
      batch,
      heads,
      kvHeads,
      queryLength,
      keyLength,
      keyCapacity,
      headSize,
      scale,
      causal,
    }),
    extras: { elementType: elementTypeOf(program), biasStrides: bias ? biasStrides : null, sinks: false },
    buffers: { query, key, value, ...(bias ? { bias } : {}) },
  };
}

/** The buffer that a dispatch of `whole` or `combination` writes the attention's output to, or why it is not known. */
export function carriedOutput(dispatch: Dispatch): GPUBuffer | string {
  const known = knownProgram(dispatch.program);
  if (typeof known === 'string') return known;
  return whole(dispatch.buffer('output')) ?? 'its buffers are parts of others';
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
