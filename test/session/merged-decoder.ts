import { Tensor } from 'onnxruntime-node';
import { normal } from '../conformance/random.js';
import { onnx } from '../graph/onnx-text.js';

const HEADS = 2;
const SIZE = 32;
const ENCODED = 40;

/** The tensors of the cache, without `past_key_values.` or `present.`. */
export const CACHE = ['0.decoder.key', '0.decoder.value', '0.encoder.key', '0.encoder.value'] as const;

/**
 * A decoder with self- and cross-attention as transformers.js runs them: an If whose branches compute with and without a cache.
 *
 * @param encoder What the branch with a cache gives for the encoder's keys and values: themselves, or as Optimum exports it
 * an empty tensor in the place of each.
 */
export function mergedDecoder(encoder: 'passed' | 'empty'): Uint8Array {
  const kv = `f32[batch,${HEADS},?,${SIZE}]`;
  const x = `f32[batch,${HEADS},new,${SIZE}]`;
  const attention = (name: string, query: string, key: string, value: string) => `
    ${name}_columns = Transpose<perm=[0, 1, 3, 2]>(${key})
    ${name}_raw = MatMul(${query}, ${name}_columns)
    ${name}_scores = Mul(${name}_raw, 0.2)
    ${name}_weights = Softmax<axis=-1>(${name}_scores)
    ${name} = MatMul(${name}_weights, ${value})`;
  const past = (part: string) => `past_key_values.0.${part}`;
  const atEncoder = (part: string) =>
    encoder === 'passed' ? `Identity(${past(part)})` : `ConstantOfShape([0, ${HEADS}, 1, ${SIZE}])`;
  const outputs = (branch: string) => ({
    [`${branch}_y`]: x,
    [`${branch}_key`]: kv,
    [`${branch}_value`]: kv,
    [`${branch}_encoder_key`]: kv,
    [`${branch}_encoder_value`]: kv,
  });
  return onnx({
    nodes: `y ${CACHE.map((name) => `present.${name}`).join(' ')} =
      If<then_branch=&cached, else_branch=&first>(use_cache_branch)`.replace(/\n\s*/, ' '),
    graphs: {
      cached: {
        nodes: `
          cached_q = MatMul(x, weight_q)
          cached_k = MatMul(x, weight_k)
          cached_v = MatMul(x, weight_v)
          cached_key = Concat<axis=2>(${past('decoder.key')}, cached_k)
          cached_value = Concat<axis=2>(${past('decoder.value')}, cached_v)
          ${attention('cached_self', 'cached_q', 'cached_key', 'cached_value')}
          cached_h = Add(x, cached_self)
          cached_cq = MatMul(cached_h, weight_q)
          ${attention('cached_cross', 'cached_cq', past('encoder.key'), past('encoder.value'))}
          cached_y = Add(cached_h, cached_cross)
          cached_encoder_key = ${atEncoder('encoder.key')}
          cached_encoder_value = ${atEncoder('encoder.value')}`,
        outputs: outputs('cached'),
      },
      first: {
        nodes: `
          first_q = MatMul(x, weight_q)
          first_key = MatMul(x, weight_k)
          first_value = MatMul(x, weight_v)
          ${attention('first_self', 'first_q', 'first_key', 'first_value')}
          first_h = Add(x, first_self)
          first_cq = MatMul(first_h, weight_q)
          first_encoder_key = MatMul(encoded, weight_k)
          first_encoder_value = MatMul(encoded, weight_v)
          ${attention('first_cross', 'first_cq', 'first_encoder_key', 'first_encoder_value')}
          first_y = Add(first_h, first_cross)`,
        outputs: outputs('first'),
      },
    },
    inputs: {
      x,
      encoded: `f32[batch,${HEADS},source,${SIZE}]`,
      ...Object.fromEntries(CACHE.map((name) => [`past_key_values.${name}`, kv])),
      use_cache_branch: 'bool[1]',
    },
    initializers: Object.fromEntries(
      ['weight_q', 'weight_k', 'weight_v'].map((name, i) => [
        name,
        { dims: [SIZE, SIZE], data: normal(SIZE * SIZE, i + 1).map((value) => 0.2 * value) },
      ]),
    ),
    outputs: { y: x, ...Object.fromEntries(CACHE.map((name) => [`present.${name}`, kv])) },
  });
}

function tensor(length: number, seed: number): Tensor {
  return new Tensor('float32', normal(HEADS * length * SIZE, seed), [1, HEADS, length, SIZE]);
}

/** Feeds of `count` new tokens after a cache, or after none. */
export function decoderFeeds(
  count: number,
  seed: number,
  cache?: Readonly<Record<string, Tensor>>,
): Record<string, Tensor> {
  return {
    x: tensor(count, seed),
    encoded: tensor(ENCODED, 99),
    ...Object.fromEntries(CACHE.map((name) => [`past_key_values.${name}`, cache?.[name] ?? tensor(0, 1)])),
    use_cache_branch: new Tensor('bool', Uint8Array.of(cache ? 1 : 0), [1]),
  };
}

/** The cache after a run, as transformers.js keeps it: of the encoder that of the first run. */
export function cacheOf(
  outputs: Readonly<Record<string, unknown>>,
  before?: Readonly<Record<string, Tensor>>,
): Record<string, Tensor> {
  return Object.fromEntries(
    CACHE.map((name) => [
      name,
      (name.includes('encoder') && before?.[name]) || (outputs[`present.${name}`] as Tensor),
    ]),
  );
}
