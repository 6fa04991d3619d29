import { readFile } from 'node:fs/promises';
import { AutoModelForCausalLM, AutoTokenizer, Tensor } from '@huggingface/transformers';
import { MxattnError } from '@mxattn/core';
import type { PatchOptions } from '@mxattn/transformers-patch';
import { MODEL, withAttention } from './models.js';

/** Tokens that one window predicts; the model's context is 2,048. */
const WINDOW = 1024;

export interface Perplexity {
  /** exp of the mean negative log likelihood. */
  readonly perplexity: number;
  /** Tokens predicted. */
  readonly tokens: number;
}

/**
 * The first `count` tokens of a text the model never saw, its documents separated by the end-of-text token.
 *
 * @throws MxattnError when the file is missing or too short.
 */
export async function heldOutTokens(file: string, count: number): Promise<number[]> {
  const text = await readFile(file, 'utf8').catch(() => {
    throw new MxattnError(`the held-out text ${file} cannot be read`);
  });
  const tokenizer = await AutoTokenizer.from_pretrained(MODEL);
  // A token is seldom longer than eight characters; the rest of the text would only take time.
  const ids = tokenizer.encode(text.slice(0, count * 8).replaceAll('\n<|endoftext|>\n', '<|endoftext|>'));
  if (ids.length < count)
    throw new MxattnError(`the held-out text ${file} has ${ids.length} tokens, not ${count}`);
  return ids.slice(0, count);
}

/**
 * Perplexity over windows of 1,024 tokens.
 *
 * @param attention How mxattn runs the model; null: not at all.
 * @param ids Tokens of the text; the ones after the last whole window are left out.
 */
export async function perplexity(
  attention: PatchOptions | null,
  ids: readonly number[],
  threads: number,
  onWindow: (done: number, windows: number) => void = () => {},
): Promise<Perplexity> {
  return withAttention(attention, async () => {
    const model = await AutoModelForCausalLM.from_pretrained(MODEL, {
      dtype: 'fp32',
      session_options: { intraOpNumThreads: threads },
    });
    try {
      const windows = Math.floor((ids.length - 1) / WINDOW);
      let loss = 0;
      for (let w = 0; w < windows; w++) {
        const window = ids.slice(w * WINDOW, w * WINDOW + WINDOW + 1);
        const input = BigInt64Array.from(window.slice(0, WINDOW), BigInt);
        const { logits } = (await model({
          input_ids: new Tensor('int64', input, [1, WINDOW]),
          attention_mask: new Tensor('int64', new BigInt64Array(WINDOW).fill(1n), [1, WINDOW]),
        })) as { logits: Tensor };
        loss += negativeLogLikelihood(logits.data as Float32Array, window.slice(1));
        onWindow(w + 1, windows);
      }
      const tokens = windows * WINDOW;
      return { perplexity: Math.exp(loss / tokens), tokens };
    } finally {
      await model.dispose();
    }
  });
}

/** Sum over rows of log(sum(exp(logits))) - logit of the target. Logits: [targets][vocabulary]. */
export function negativeLogLikelihood(logits: Float32Array, targets: readonly number[]): number {
  const vocabulary = logits.length / targets.length;
  let loss = 0;
  targets.forEach((target, row) => {
    const from = row * vocabulary;
    let top = -Infinity;
    for (let i = from; i < from + vocabulary; i++) top = Math.max(top, logits[i]!);
    let sum = 0;
    for (let i = from; i < from + vocabulary; i++) sum += Math.exp(logits[i]! - top);
    loss += top + Math.log(sum) - logits[from + target]!;
  });
  return loss;
}
