/// <reference types="@webgpu/types" />
import { type AttentionSpec, attentionSpec } from '@mxattn/core';
import type { Dispatch, Program } from '../webgpu/inplace/index.js';
import type { AttentionBuffers, Extras } from '../webgpu/plan.js';
import type { OperandLayouts } from '../webgpu/problem.js';

/**
 * ONNX Runtime's program for attention with several queries, by the label of its shader module. Its dispatches are what
 * kernels of ours stand in for.
 */
export const carrierProgram = 'FlashAttention';

/** The buffers that the program declares before and between query, keys, values and output, in any selection. */
const knownBindings: Readonly<Record<string, string>> = {
  q: 'storage, read array<vec4<f32>>',
  present_key: 'storage, read array<vec4<f32>>',
  present_value: 'storage, read array<vec4<f32>>',
  seqlens_k: 'storage, read array<i32>',
  attention_bias: 'storage, read array<f32>',
  output: 'storage, read_write array<vec4<f32>>',
  uniforms: 'uniform Uniforms',
};

/** Of onnxruntime-web 1.30 and 1.31-dev; other versions get a line of their own when their uniforms differ. */
const knownUniforms: readonly string[] = [
  'new_sequence_length total_sequence_length present_sequence_length batch_size n_reps alpha num_seq_tile ' +
    'attn_bias_dim0 attn_bias_dim1 attn_bias_dim3 local_window_size',
];

/** How the program masks by position: the end of the keys that a query sees. */
const keyEnds: Readonly<Record<string, { causal: boolean }>> = {
  total_sequence_length: { causal: false },
  'past_sequence_length + q_idx_global + 1': { causal: true },
};

/** Query and output are [batch, length, heads, size], keys and values [batch, heads, capacity, size]. */
export const carrierLayouts: OperandLayouts = { query: 'BSHD', key: 'BHSD', value: 'BHSD', output: 'BSHD' };

/** An attention that a dispatch is about to compute. */
export interface CarriedAttention {
  readonly spec: AttentionSpec;
  readonly extras: Extras;
  readonly buffers: AttentionBuffers;
}

/** Why a version of the program is not known well enough to be replaced; undefined if it is. */
export function programObstacle({ bindings, uniforms, constants, code }: Program): string | undefined {
  for (const { name, space, type } of bindings) {
    if (knownBindings[name] !== `${space} ${type}`) return `it has a buffer ${name}: ${space} ${type}`;
  }
  const names = uniforms.map(({ name }) => name).join(' ');
  if (!knownUniforms.includes(names)) return `its uniforms are ${names}`;
  if (!constants.has('head_size') || !constants.has('num_heads')) return 'its head size is unknown';
  if (!keyEnds[initialValue(code, 'seq_causal_length') ?? ''])
    return 'it masks by position in an unknown way';
  if (initialValue(code, 'local_window_start') !== '0u') return 'it has a window';
  return undefined;
}

/** The attention of a dispatch, or why it is left to ONNX Runtime. */
export function carriedAttention(dispatch: Dispatch): CarriedAttention | string {
  const { program } = dispatch;
  const obstacle = programObstacle(program);
  if (obstacle) return obstacle;
  const sizes = program.uniforms.map(({ name }) => dispatch.uniform(name));
  if (sizes.includes(undefined)) return 'its sizes are not known when it is recorded';
  const [queryLength, keyLength, keyCapacity, batch, groupSize, scale, , biasBatch, biasHeads, biasKeys] =
    sizes as number[];
  const heads = program.constants.get('num_heads')!;
  // Entries of a batch may then have fewer keys, each its own number.
  if (dispatch.buffer('seqlens_k') && batch !== 1)
    return 'the batch has several entries with lengths of their own';
  const query = whole(dispatch.buffer('q'));
  const key = whole(dispatch.buffer('present_key'));
  const value = whole(dispatch.buffer('present_value'));
  const output = whole(dispatch.buffer('output'));
  const bias = whole(dispatch.buffer('attention_bias'));
  if (!query || !key || !value || !output || bias === null) return 'its buffers are parts of others';
  const spec = attentionSpec({
    batch: batch!,
    heads,
    kvHeads: heads / groupSize!,
    queryLength: queryLength!,
    keyLength: keyLength!,
    keyCapacity: keyCapacity!,
    headSize: program.constants.get('head_size')!,
    scale: scale!,
    causal: keyEnds[initialValue(program.code, 'seq_causal_length')!]!.causal,
  });
  const rows = queryLength! * biasKeys!;
  const biasStrides = [
    biasBatch === 1 ? 0 : biasHeads! * rows,
    biasHeads === 1 ? 0 : rows,
    biasKeys!,
    1,
  ] as const;
  return {
    spec,
    extras: { biasStrides: bias ? biasStrides : null, sinks: false },
    buffers: { query, key, value, output, ...(bias ? { bias } : {}) },
  };
}

function initialValue(code: string, name: string): string | undefined {
  return new RegExp(`let ${name} = ([^;]+);`).exec(code)?.[1];
}

/** The buffer of a binding that begins at its start; null for others. */
function whole(binding: GPUBufferBinding | undefined): GPUBuffer | null | undefined {
  if (!binding) return undefined;
  return (binding.offset ?? 0) === 0 ? binding.buffer : null;
}
