import { cpus } from 'node:os';
import { fileURLToPath } from 'node:url';
import {
  AutoModelForCausalLM,
  BaseStreamer,
  DynamicCache,
  type PreTrainedModel,
  Tensor,
} from '@huggingface/transformers';
import { heldOutTokens, negativeLogLikelihood, openModels } from '@mxattn/example-llm';
import { kvCacheBytes } from '@mxattn/ort-op';
import { terminalProgress } from '@mxattn/progress';
import { type PatchOptions, patch, unpatch } from '@mxattn/transformers-patch';
import { attentionName, attentions } from './attentions.js';
import { median } from './interleave.js';
import { type LlamaCache, openLlamaCpp } from './llama-cpp/runtime.js';
import type { BenchmarkResult, Row } from './row.js';

const MODELS = fileURLToPath(new URL('../../examples/models/', import.meta.url));
const MODEL = 'story-llama';
const THREADS = 2;
const ROUNDS = 15;
/** Tokens of the prompt, and how many are generated behind it. */
const CONTEXT = 1500;
const GENERATED = 17;
/** Contexts over which perplexity is taken. */
const CONTEXTS = 4;
/** Tokens for which a cache takes the memory that it needs: it grows by so many. */
const CACHE_CHUNK = 1024;

/**
 * transformers.js with and without mxattn: the time to the first token of a long prompt, the time of each further token,
 * and what the cache's format costs in perplexity.
 */
export async function llmBenchmark(): Promise<BenchmarkResult> {
  openModels(MODELS);
  const text = await heldOutTokens(`${MODELS}heldout.txt`, CONTEXTS * (CONTEXT + 1));
  const stock = await load(null);
  const llama = await openLlamaCpp(`${MODELS}${MODEL}`, THREADS);
  if (typeof llama === 'string') console.warn(`skipped: llama.cpp: ${llama}`);
  else await checkSameTokens(stock, llama, text);
  const rows: Row[] = [];
  const memory: Record<string, number> = {};
  for (const attention of attentions) {
    const ours = await load(attention);
    const label = attentionName(attention);
    const generate: Generate = (prompt) => tokenTimes(ours, prompt);
    const measure = async (peerName: string, peer: Generate) => {
      const times = await terminalProgress(`story-llama, ${label}, ${peerName}`, ROUNDS, (step) =>
        generateByTurns(generate, peer, text, step),
      );
      for (const [name, pair] of Object.entries(times)) {
        const unit = { shape: `${CONTEXT} tokens of context`, peerName };
        rows.push({ name: `${name}, ${label}`, ...unit, ...pair, ratio: pair.peer / pair.ours });
      }
    };
    await measure('transformers.js', (prompt) => tokenTimes(stock, prompt));
    const cache = typeof llama === 'string' ? undefined : comparableCache(attention);
    if (cache && typeof llama !== 'string') {
      const peer = await llama.open(cache);
      await measure(
        `llama.cpp, flash attention, ${cache.toLowerCase()} cache`,
        async (prompt) => (await peer.generate(prompt, GENERATED)).times,
      );
      await peer.dispose();
    }
    memory[label] = await cacheBitsPerElement(ours, text);
    await ours.dispose();
  }
  const perplexities = await perplexityByPrecision(stock, text);
  await stock.dispose();
  if (typeof llama !== 'string') await llama.close();
  return {
    machine: {
      cpu: cpus()[0]?.model ?? '',
      threads: THREADS,
      ...Object.fromEntries(
        Object.entries(memory).map(([name, bits]) => [`cache, ${name}, bits per element`, bits.toFixed(2)]),
      ),
      ...Object.fromEntries(
        Object.entries(perplexities).map(([name, value]) => [`perplexity, ${name}`, value.toFixed(3)]),
      ),
    },
    rows,
  };
}

type Llama = Exclude<Awaited<ReturnType<typeof openLlamaCpp>>, string>;

/** The cache of llama.cpp with about as many bits. */
function comparableCache({ precision, kvCacheFormat }: (typeof attentions)[number]): LlamaCache | undefined {
  if (precision === 'f32' && kvCacheFormat === 'f16') return 'F16';
  if (precision === 'mxfp6' && kvCacheFormat === 'mxfp6') return 'Q8_0';
  return precision === 'mxfp4' ? 'Q4_0' : undefined;
}

/** @throws Error where llama.cpp, with a cache of float16, does not say what transformers.js says: the model was not carried over. */
async function checkSameTokens(stock: PreTrainedModel, llama: Llama, text: readonly number[]): Promise<void> {
  const prompt = text.slice(0, CONTEXT);
  const peer = await llama.open('F16');
  const { tokens } = await peer.generate(prompt, GENERATED);
  await peer.dispose();
  const continued = (await stock.generate({
    ...tokensAsInput(prompt, prompt.length),
    max_new_tokens: GENERATED,
    do_sample: false,
    eos_token_id: -1,
  } as never)) as Tensor;
  const expected = Array.from(continued.data as BigInt64Array, Number).slice(CONTEXT);
  if (tokens.join() !== expected.join()) {
    throw new Error(`llama.cpp continues with ${tokens.join()}, transformers.js with ${expected.join()}`);
  }
}

async function load(attention: PatchOptions | null): Promise<PreTrainedModel> {
  if (attention) patch({ ...attention, backend: 'native', from: import.meta.url });
  try {
    return await AutoModelForCausalLM.from_pretrained(MODEL, {
      dtype: 'fp32',
      session_options: { intraOpNumThreads: THREADS },
    });
  } finally {
    unpatch();
  }
}

type Pair = { ours: number; peer: number };

/** Generates behind a prompt, and says when each token came, in milliseconds from the call. */
type Generate = (prompt: readonly number[]) => Promise<number[]>;

/** Median milliseconds of the first token and of a further one. */
async function generateByTurns(
  ours: Generate,
  peer: Generate,
  text: readonly number[],
  onRound: (done: number) => void,
): Promise<{ 'first token': Pair; 'further token': Pair }> {
  const models = { ours, peer };
  const first: Record<keyof Pair, number[]> = { ours: [], peer: [] };
  const further: Record<keyof Pair, number[]> = { ours: [], peer: [] };
  for (let round = -1; round < ROUNDS; round++) {
    for (const name of ['ours', 'peer'] as const) {
      const times = await models[name](text.slice(0, CONTEXT));
      // The first round is for allocations and code that is compiled on first use.
      if (round < 0) continue;
      first[name].push(times[0]!);
      further[name].push((times.at(-1)! - times[0]!) / (times.length - 1));
    }
    if (round >= 0) onRound(round + 1);
  }
  const pair = (times: Record<keyof Pair, number[]>) => ({
    ours: median(times.ours),
    peer: median(times.peer),
  });
  return { 'first token': pair(first), 'further token': pair(further) };
}

/** Of a greedy continuation. */
async function tokenTimes(model: PreTrainedModel, prompt: readonly number[]): Promise<number[]> {
  const times: number[] = [];
  const streamer = new (class extends BaseStreamer {
    override put(): void {
      times.push(performance.now() - start);
    }
    override end(): void {}
  })();
  const start = performance.now();
  await model.generate({
    ...tokensAsInput(prompt, prompt.length),
    max_new_tokens: GENERATED,
    do_sample: false,
    eos_token_id: -1,
    streamer,
  } as never);
  // The prompt itself is streamed first.
  return times.slice(1);
}

function tokensAsInput(tokens: readonly number[], length: number) {
  return {
    input_ids: new Tensor('int64', BigInt64Array.from(tokens, BigInt), [1, tokens.length]),
    attention_mask: new Tensor('int64', new BigInt64Array(length).fill(1n), [1, length]),
  };
}

type Outputs = Record<string, Tensor>;

/** Bits that the cache takes per element of keys and values, all layers. */
async function cacheBitsPerElement(model: PreTrainedModel, text: readonly number[]): Promise<number> {
  const outputs = (await model(tokensAsInput(text.slice(0, CACHE_CHUNK), CACHE_CHUNK))) as Outputs;
  const cache = Object.entries(outputs).filter(([name]) => name.startsWith('present.'));
  const elements = cache.reduce((sum, [, { dims }]) => sum + dims.reduce((a, b) => a * b, 1), 0);
  const bytes = kvCacheBytes(cache[0]![1].ort_tensor as never);
  for (const [, tensor] of cache) tensor.dispose();
  return (8 * bytes) / elements;
}

/** Perplexity over contexts of 1,500 tokens: all at once for the stock model, token by token from the cache for ours. */
async function perplexityByPrecision(
  stock: PreTrainedModel,
  text: readonly number[],
): Promise<Record<string, number>> {
  const contexts = Array.from({ length: CONTEXTS }, (_, i) =>
    text.slice(i * (CONTEXT + 1), (i + 1) * (CONTEXT + 1)),
  );
  const result: Record<string, number> = {};
  const measure = async (name: string, loss: (context: readonly number[]) => Promise<number>) => {
    let sum = 0;
    await terminalProgress(`perplexity, ${name}`, CONTEXTS, async (step) => {
      for (const [i, context] of contexts.entries()) {
        sum += await loss(context);
        step(i + 1);
      }
    });
    result[name] = Math.exp(sum / (CONTEXTS * CONTEXT));
  };
  await measure('transformers.js', async (context) => {
    const { logits } = (await stock(tokensAsInput(context.slice(0, -1), CONTEXT))) as Outputs;
    return negativeLogLikelihood(logits!.data as Float32Array, context.slice(1));
  });
  for (const attention of attentions) {
    const ours = await load(attention);
    await measure(attentionName(attention), (context) => lossFromCache(ours, context));
    await ours.dispose();
  }
  return result;
}

/** The negative log likelihood of a context, each token predicted from the cache of those before. */
async function lossFromCache(model: PreTrainedModel, context: readonly number[]): Promise<number> {
  const cache = new DynamicCache();
  let loss = 0;
  for (let at = 0; at < CONTEXT; at++) {
    const inputs = tokensAsInput([context[at]!], at + 1);
    const outputs = (await model(at === 0 ? inputs : { ...inputs, past_key_values: cache })) as Outputs;
    loss += negativeLogLikelihood(outputs.logits!.data as Float32Array, [context[at + 1]!]);
    cache.update(
      Object.fromEntries(
        Object.entries(outputs)
          .filter(([name]) => name.startsWith('present.'))
          .map(([name, tensor]) => [name.replace('present', 'past_key_values'), tensor]),
      ),
    );
  }
  await cache.dispose();
  return loss;
}
