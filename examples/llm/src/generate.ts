import { pipeline, TextStreamer } from '@huggingface/transformers';
import type { PatchOptions } from '@mxattn/transformers-patch';
import { MODEL, withAttention } from './models.js';

export interface Generated {
  /** Prompt and continuation. */
  readonly text: string;
  /** Mean time of a token after the first, whose time is the prompt's. */
  readonly msPerToken: number;
}

/**
 * Continues a prompt greedily.
 *
 * @param attention How mxattn runs the model; null: not at all.
 * @param onToken Called with the number of tokens so far.
 */
export async function generate(
  attention: PatchOptions | null,
  prompt: string,
  tokens: number,
  threads: number,
  onToken: (count: number) => void = () => {},
): Promise<Generated> {
  return withAttention(attention, async () => {
    const generator = await pipeline('text-generation', MODEL, {
      dtype: 'fp32',
      session_options: { intraOpNumThreads: threads },
    });
    try {
      // Once unmeasured: first allocations, code compiled on first use.
      await generator(prompt, { max_new_tokens: 4, do_sample: false });
      const times: number[] = [];
      const streamer = new TextStreamer(generator.tokenizer, {
        callback_function: () => {},
        token_callback_function: () => {
          times.push(performance.now());
          onToken(times.length);
        },
      });
      const options = { max_new_tokens: tokens, do_sample: false, streamer };
      const [result] = (await generator(prompt, options)) as [{ generated_text: string }];
      const elapsed = times.at(-1)! - times[0]!;
      return { text: result.generated_text, msPerToken: elapsed / Math.max(1, times.length - 1) };
    } finally {
      await generator.dispose();
    }
  });
}
