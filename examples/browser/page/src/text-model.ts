import { InterruptableStoppingCriteria, pipeline, TextStreamer } from '@huggingface/transformers';
import type { SessionReport } from '@mxattn/ort-op/web';
import { patch, patchReport, unpatch } from '@mxattn/transformers-patch';
import type { Environment } from './environment.js';
import { sessionOptions, type Variant } from './variants.js';

const MODEL = 'story-llama';

export interface TextOptions {
  readonly device: Environment['device'];
  readonly prompt: string;
  readonly tokens: number;
  readonly signal: AbortSignal;
  readonly onLoad: (part: number) => void;
  readonly onText: (more: string) => void;
  readonly onToken: (count: number) => void;
}

export interface TextResult {
  readonly ids: readonly bigint[];
  /** Of each token after the first, whose time is the prompt's. */
  readonly times: readonly number[];
  readonly report: SessionReport;
}

/** Continues a story greedily. */
export async function writeText(variant: Variant, options: TextOptions): Promise<TextResult> {
  patch(sessionOptions(variant, options.device));
  try {
    const generator = await pipeline('text-generation', MODEL, {
      device: options.device,
      dtype: 'fp32',
      progress_callback: (info) => {
        if (info.status !== 'progress' || !info.file.endsWith('.onnx')) return;
        if (info.total > 0) options.onLoad(Math.min(1, info.loaded / info.total));
      },
    });
    options.onLoad(1);
    const report = patchReport().at(-1)!;
    const stopping = new InterruptableStoppingCriteria();
    const stop = () => stopping.interrupt();
    options.signal.addEventListener('abort', stop);
    const ids: bigint[] = [];
    const times: number[] = [];
    let last = 0;
    try {
      options.signal.throwIfAborted();
      await generator(options.prompt, {
        max_new_tokens: options.tokens,
        do_sample: false,
        stopping_criteria: stopping,
        streamer: new TextStreamer(generator.tokenizer, {
          skip_prompt: true,
          callback_function: options.onText,
          token_callback_function: (tokens) => {
            const now = performance.now();
            if (ids.length > 0) times.push(now - last);
            last = now;
            ids.push(...tokens);
            options.onToken(ids.length);
          },
        }),
      });
      options.signal.throwIfAborted();
    } finally {
      options.signal.removeEventListener('abort', stop);
      await generator.dispose();
    }
    return { ids, times, report };
  } finally {
    unpatch();
  }
}
