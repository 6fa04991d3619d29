import { join } from 'node:path';
import { generate, heldOutTokens, openModels, perplexity } from '@mxattn/example-llm';
import type { Progress } from '@mxattn/progress';
import { patchReport } from '@mxattn/transformers-patch';
import type { DemoOptions } from './options.js';
import type { LlmResult } from './results.js';
import type { Variant } from './variants.js';

/** Eight windows of 1,024 tokens, and one more to predict. */
const PERPLEXITY_TOKENS = 8 * 1024 + 1;

/** Runs the language model every way: a greedy continuation and the perplexity of held-out text. */
export async function textRuns(
  variants: readonly Variant[],
  options: DemoOptions,
  progress: Progress,
): Promise<{ results: Record<string, LlmResult>; replaced: number; tokens: number }> {
  openModels(options.models);
  const ids = await heldOutTokens(join(options.models, 'heldout.txt'), PERPLEXITY_TOKENS);
  const results: Record<string, LlmResult> = {};
  let tokens = 0;
  for (const { name, llm } of variants) {
    const attention = llm && { schedule: llm, backend: 'native' as const };
    const { text, msPerToken } = await progress(`text, ${name}`, options.tokens, (step) =>
      generate(attention, options.prompt, options.tokens, options.threads, step),
    );
    const windows = Math.floor((ids.length - 1) / 1024);
    const measured = await progress(`perplexity, ${name}`, windows, (step) =>
      perplexity(attention, ids, options.threads, step),
    );
    tokens = measured.tokens;
    results[name] = { text, msPerToken, perplexity: measured.perplexity };
  }
  return { results, replaced: patchReport().at(-1)?.replaced.length ?? 0, tokens };
}
