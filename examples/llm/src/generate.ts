import { pipeline, TextStreamer } from '@huggingface/transformers';
import { type LlmVariant, MODEL, withVariant } from './variants.js';

export interface Generated {
  /** Prompt and continuation. */
  readonly text: string;
  /** Mean time of a new token after the first, which includes the prompt. */
  readonly msPerToken: number;
}

/**
 * Continues a prompt greedily.
 *
 * @param onToken Called with the number of tokens so far.
 */
export async function generate(
  variant: LlmVariant,
  prompt: string,
  tokens: number,
  threads: number,
  onToken: (count: number) => void = () => {},
): Promise<Generated> {
  return withVariant(variant, async () => {
    const generator = await pipeline('text-generation', MODEL, {
      dtype: 'fp32',
      session_options: { intraOpNumThreads: threads },
    });
    try {
      // Once unmeasured: first-time allocations and code generation.
      await generator(prompt, { max_new_tokens: 4, do_sample: false });
      const times: number[] = [];
      const streamer = new TextStreamer(generator.tokenizer, {
        callback_function: () => {},
        token_callback_function: () => {
          times.push(performance.now());
          onToken(times.length);
        },
      });
      const [result] = (await generator(prompt, {
        max_new_tokens: tokens,
        do_sample: false,
        streamer,
      })) as [{ generated_text: string }];
      const elapsed = times.at(-1)! - times[0]!;
      return { text: result.generated_text, msPerToken: elapsed / Math.max(1, times.length - 1) };
    } finally {
      await generator.dispose();
    }
  });
}
