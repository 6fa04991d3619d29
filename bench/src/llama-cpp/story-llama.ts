import { readFileSync } from 'node:fs';
import { fromF16 } from '@mxattn/core';
import { type ModelProto, readModel } from '@mxattn/ort-op';
import { type GgufTensor, type GgufValue, ggufFile } from './gguf.js';

interface Config {
  readonly hidden_size: number;
  readonly intermediate_size: number;
  readonly num_hidden_layers: number;
  readonly num_attention_heads: number;
  readonly num_key_value_heads: number;
  readonly head_dim: number;
  readonly max_position_embeddings: number;
  readonly rms_norm_eps: number;
  readonly rope_theta: number;
  readonly bos_token_id: number;
  readonly eos_token_id: number;
}

interface Tokenizer {
  readonly model: {
    readonly vocab: Readonly<Record<string, number>>;
    readonly merges: readonly (string | readonly [string, string])[];
  };
}

/** story-llama's ONNX file, with the weights that it has, as a GGUF file. */
export function storyLlamaAsGguf(folder: string): Uint8Array {
  const json = (name: string) => JSON.parse(readFileSync(`${folder}/${name}`, 'utf8')) as unknown;
  const config = json('config.json') as Config;
  const weights = new Weights(readModel(`${folder}/onnx/model.onnx`));
  return ggufFile(metadata(config, json('tokenizer.json') as Tokenizer), tensors(config, weights));
}

function metadata(config: Config, { model }: Tokenizer): Record<string, GgufValue> {
  const u32 = (value: number): GgufValue => ({ type: 'u32', value });
  const f32 = (value: number): GgufValue => ({ type: 'f32', value });
  const tokens = Object.entries(model.vocab)
    .sort(([, a], [, b]) => a - b)
    .map(([token]) => token);
  return {
    'general.architecture': { type: 'string', value: 'llama' },
    'general.name': { type: 'string', value: 'story-llama' },
    'llama.block_count': u32(config.num_hidden_layers),
    'llama.context_length': u32(config.max_position_embeddings),
    'llama.embedding_length': u32(config.hidden_size),
    'llama.feed_forward_length': u32(config.intermediate_size),
    'llama.attention.head_count': u32(config.num_attention_heads),
    'llama.attention.head_count_kv': u32(config.num_key_value_heads),
    'llama.attention.key_length': u32(config.head_dim),
    'llama.attention.value_length': u32(config.head_dim),
    'llama.attention.layer_norm_rms_epsilon': f32(config.rms_norm_eps),
    'llama.rope.dimension_count': u32(config.head_dim),
    'llama.rope.freq_base': f32(config.rope_theta),
    'tokenizer.ggml.model': { type: 'string', value: 'gpt2' },
    'tokenizer.ggml.pre': { type: 'string', value: 'gpt-2' },
    'tokenizer.ggml.tokens': { type: 'strings', value: tokens },
    'tokenizer.ggml.token_type': {
      type: 'i32s',
      value: tokens.map((_, id) => (id === config.eos_token_id ? 3 : 1)),
    },
    'tokenizer.ggml.merges': {
      type: 'strings',
      value: model.merges.map((merge) => (typeof merge === 'string' ? merge : merge.join(' '))),
    },
    'tokenizer.ggml.bos_token_id': u32(config.bos_token_id),
    'tokenizer.ggml.eos_token_id': u32(config.eos_token_id),
  };
}

function tensors(config: Config, weights: Weights): GgufTensor[] {
  const { num_attention_heads: heads, num_key_value_heads: kvHeads, head_dim: size } = config;
  const blocks = Array.from({ length: config.num_hidden_layers }, (_, layer) => {
    const from = `/blocks.${layer}`;
    const to = `blk.${layer}`;
    return [
      weights.of(`${from}/n1/Mul_1`, `${to}.attn_norm.weight`),
      interleaved(weights.of(`${from}/attn/q/MatMul`, `${to}.attn_q.weight`), heads, size),
      interleaved(weights.of(`${from}/attn/k/MatMul`, `${to}.attn_k.weight`), kvHeads, size),
      weights.of(`${from}/attn/v/MatMul`, `${to}.attn_v.weight`),
      weights.of(`${from}/attn/o/MatMul`, `${to}.attn_output.weight`),
      weights.of(`${from}/n2/Mul_1`, `${to}.ffn_norm.weight`),
      weights.of(`${from}/g/MatMul`, `${to}.ffn_gate.weight`),
      weights.of(`${from}/u/MatMul`, `${to}.ffn_up.weight`),
      weights.of(`${from}/d/MatMul`, `${to}.ffn_down.weight`),
    ];
  });
  return [
    weights.of('/emb/Gather', 'token_embd.weight'),
    ...blocks.flat(),
    weights.of('/n/Mul_1', 'output_norm.weight'),
  ];
}

/** llama.cpp rotates pairs of neighbouring channels; the model, channels half a head apart. */
function interleaved({ name, dims, data }: GgufTensor, heads: number, size: number): GgufTensor {
  const columns = dims[1]!;
  const result = new Float32Array(data.length);
  for (let row = 0; row < heads * size; row++) {
    const channel = row % size;
    const to = row - channel + (channel % (size / 2)) * 2 + Math.floor(channel / (size / 2));
    result.set(data.subarray(row * columns, (row + 1) * columns), to * columns);
  }
  return { name, dims, data: result };
}

/** The weights of a model by the nodes that use them. */
class Weights {
  constructor(private readonly model: ModelProto) {}

  /** @throws Error if the node is not there or has no weights. */
  of(node: string, name: string): GgufTensor {
    const { node: nodes, initializer } = this.model.graph!;
    const found = nodes.find((each) => each.name === node);
    for (const input of found?.input ?? []) {
      // Weights may be stored as float16 behind a Cast.
      const stored =
        nodes.find(({ opType, output }) => opType === 'Cast' && output[0] === input)?.input[0] ?? input;
      const tensor = initializer.find((each) => each.name === stored);
      if (!tensor) continue;
      const dims = tensor.dims.map(Number);
      const { buffer, byteOffset, byteLength } = Uint8Array.from(tensor.rawData);
      const half = byteLength === 2 * dims.reduce((a, b) => a * b, 1);
      const data = half
        ? Float32Array.from(new Uint16Array(buffer, byteOffset, byteLength / 2), fromF16)
        : new Float32Array(buffer, byteOffset, byteLength / 4);
      return found!.opType === 'MatMul' ? transposed({ name, dims, data }) : { name, dims, data };
    }
    throw new Error(`story-llama has no weights at ${node}`);
  }
}

function transposed({ name, dims, data }: GgufTensor): GgufTensor {
  const [rows, columns] = dims as [number, number];
  const result = new Float32Array(data.length);
  for (let i = 0; i < data.length; i++) result[(i % columns) * rows + Math.floor(i / columns)] = data[i]!;
  return { name, dims: [columns, rows], data: result };
}
