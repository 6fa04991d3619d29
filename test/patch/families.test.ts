import { rmSync } from 'node:fs';
import { Worker } from 'node:worker_threads';
import {
  AutoModel,
  AutoModelForCausalLM,
  AutoTokenizer,
  type DataType,
  DynamicCache,
  env,
  pipeline,
  RawImage,
  type Tensor,
  TextStreamer,
} from '@huggingface/transformers';
import { type PatchOptions, patch, patchReport, unpatch } from '@mxattn/transformers-patch';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { noise } from '../graph/noise.js';
import { writeFamilies } from './families.js';

let folder: string;
beforeAll(() => {
  folder = writeFamilies();
  env.allowRemoteModels = false;
  env.localModelPath = folder;
});
afterEach(unpatch);
afterAll(() => rmSync(folder, { recursive: true }));

const image = new RawImage(
  Uint8ClampedArray.from(noise(32 * 32 * 3, 5), (value) => 128 + 100 * value),
  32,
  32,
  3,
);
const sound = noise(16_000, 6).map((value) => 0.1 * value);

/** What a family's pipeline gives, as numbers and texts. */
interface Family {
  readonly model: string;
  /** Attentions that are replaced, of all the files of the model. */
  readonly replaced: number;
  /** Those that are left alone. */
  readonly left?: number;
  /** What the result has in it, so that an empty one does not count as equal. */
  readonly shows?: RegExp;
  run(): Promise<unknown>;
}

const options = { dtype: 'fp32' } as const;

const families: Readonly<Record<string, Family>> = {
  'feature-extraction': {
    model: 'bert',
    replaced: 2,
    run: async () => {
      const extract = await pipeline('feature-extraction', 'bert', options);
      const result = await extract(['the sad old king', 'a happy bird and the blue sea'], {
        pooling: 'mean',
        normalize: true,
      });
      return result.tolist();
    },
  },
  'fill-mask': {
    model: 'bert-mask',
    replaced: 2,
    run: async () => {
      const fill = await pipeline('fill-mask', 'bert-mask', options);
      return fill('the old [MASK] was in the tree', { top_k: 4 });
    },
  },
  'zero-shot-classification': {
    model: 'bart-mnli',
    replaced: 4,
    // Cross-attention, which patch() leaves unless it is asked for it.
    left: 2,
    run: async () => {
      const classify = await pipeline('zero-shot-classification', 'bart-mnli', options);
      return classify('the queen was sad', ['story', 'water', 'fire'], { multi_label: true });
    },
  },
  'text2text-generation': {
    model: 't5',
    // The merged decoder has two branches.
    replaced: 6,
    left: 4,
    run: async () => {
      const generate = await pipeline('text2text-generation', 't5', options);
      return generate('the river and the road', { max_new_tokens: 12, do_sample: false });
    },
  },
  'image-classification': {
    model: 'vit',
    replaced: 2,
    run: async () => {
      const classify = await pipeline('image-classification', 'vit', options);
      return classify(image, { top_k: 5 });
    },
  },
  'zero-shot-image-classification': {
    model: 'clip',
    replaced: 4,
    run: async () => {
      const classify = await pipeline('zero-shot-image-classification', 'clip', options);
      return classify(image, ['the moon', 'a dog', 'old stone']);
    },
  },
  'automatic-speech-recognition': {
    model: 'whisper',
    // The weights of cross-attention are outputs, which word timestamps are read from; they stay.
    replaced: 6,
    left: 4,
    shows: /"text":"[^"]+","timestamp":\[\d/,
    run: async () => {
      const transcribe = await pipeline('automatic-speech-recognition', 'whisper', options);
      return transcribe(sound, {
        return_timestamps: 'word',
        language: 'en',
        task: 'transcribe',
        max_new_tokens: 16,
      });
    },
  },
  'text-generation': {
    model: 'gpt2',
    replaced: 2,
    run: async () => {
      const generate = await pipeline('text-generation', 'gpt2', options);
      return generate(['the red', 'a story of the old sea king and'], {
        max_new_tokens: 12,
        do_sample: false,
      });
    },
  },
};

async function patched<T>(options: PatchOptions, run: () => Promise<T>): Promise<T> {
  patch({ backend: 'native', ...options });
  try {
    return await run();
  } finally {
    unpatch();
  }
}

/** Numbers rounded to what f32 arithmetic in another order keeps. */
function rounded(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value), (_, part) =>
    typeof part === 'number' ? Number(part.toPrecision(3)) : part,
  );
}

describe.each(Object.entries(families))(
  '%s',
  (_task, { model, replaced, left = 0, shows = /\w{3}|\d\.\d/, run }) => {
    it('gives the same as stock at f32', async () => {
      const stock = await run();
      expect(JSON.stringify(stock)).toMatch(shows);
      const reports = patchReport().length;
      const result = await patched({ precision: 'f32' }, run);
      expect(rounded(result)).toEqual(rounded(stock));
      const files = patchReport().slice(reports);
      expect(files.every((file) => file.model.includes(`/${model}/`) || file.model.endsWith('bytes'))).toBe(
        true,
      );
      expect(files.flatMap((file) => file.replaced)).toHaveLength(replaced);
      expect(files.flatMap((file) => file.left)).toHaveLength(left);
    });

    it('runs at mxfp6', async () => {
      const exact = await patched({ precision: 'f32' }, run);
      const result = await patched({ precision: 'mxfp6' }, run);
      expect(JSON.stringify(result)).not.toContain('null');
      // What is not text shows that the precision is another one.
      if (/\d\.\d{4}/.test(JSON.stringify(exact))) expect(result).not.toEqual(exact);
    });
  },
);

/** Everything that a model computes from a text, as flat numbers. */
async function hidden(model: string, dtype: DataType, session_options = {}): Promise<number[]> {
  const tokenizer = await AutoTokenizer.from_pretrained(model);
  const encoder = await AutoModel.from_pretrained(model, { dtype, device: 'cpu', session_options });
  const { last_hidden_state } = (await encoder(
    await tokenizer(['the green tree', 'a woman of stone and fire'], { padding: true }),
  )) as {
    last_hidden_state: Tensor;
  };
  await encoder.dispose();
  return Array.from(last_hidden_state.data as Float32Array);
}

function largestDifference(a: readonly number[], b: readonly number[]): number {
  expect(a).toHaveLength(b.length);
  return Math.max(...a.map((value, i) => Math.abs(value - b[i]!)));
}

describe('patched models by other ways than a pipeline', () => {
  // Activations are near 1. What the stock model itself loses by its format is larger in each case.
  it.each([
    ['fp32', 1e-4],
    ['fp16', 2e-2],
    ['q8', 1e-4],
  ] as const)('AutoModel with dtype %s is near stock', async (dtype, bound) => {
    const stock = await hidden('bert', dtype);
    const reports = patchReport().length;
    const result = await patched({ precision: 'f32' }, () => hidden('bert', dtype));
    expect(largestDifference(result, stock)).toBeLessThan(bound);
    expect(patchReport()[reports]).toMatchObject({ backend: 'native' });
    expect(patchReport()[reports]!.replaced).toHaveLength(2);
  });

  it('keep session_options', async () => {
    const stock = await hidden('bert', 'fp32');
    const run = () => hidden('bert', 'fp32', { intraOpNumThreads: 1, graphOptimizationLevel: 'basic' });
    expect(largestDifference(await patched({ precision: 'f32' }, run), stock)).toBeLessThan(1e-4);
    const otherBatch = () => hidden('bert', 'fp32', { freeDimensionOverrides: { batch_size: 7 } });
    await expect(patched({ precision: 'f32' }, otherBatch)).rejects.toThrow(/input_ids.*2.*7|7/);
  });

  it('may be several at once', async () => {
    const runs = [
      families['feature-extraction']!,
      families['image-classification']!,
      families['text-generation']!,
    ];
    const stock = await Promise.all(runs.map(({ run }) => run()));
    const results = await patched({ precision: 'f32' }, () => Promise.all(runs.map(({ run }) => run())));
    expect(rounded(results)).toEqual(rounded(stock));
  });

  it('replace cross-attention when asked to', async () => {
    const { run } = families['text2text-generation']!;
    const stock = await run();
    const reports = patchReport().length;
    expect(await patched({ precision: 'f32', crossAttention: true }, run)).toEqual(stock);
    expect(
      patchReport()
        .slice(reports)
        .flatMap((file) => file.replaced),
    ).toHaveLength(10);
  });

  it('say why a device that is no CPU cannot be used', async () => {
    const load = () => AutoModel.from_pretrained('bert', { dtype: 'fp32', device: 'webgpu' });
    await expect(patched({ precision: 'f32' }, load)).rejects.toThrow(
      /backend native: executionProviders has "webgpu"; only cpu is supported/,
    );
  });
});

describe('patched text generation', () => {
  const load = async () => {
    const model = await AutoModelForCausalLM.from_pretrained('gpt2', options);
    return { model, tokenizer: await AutoTokenizer.from_pretrained('gpt2') };
  };

  it('streams', async () => {
    const run = async () => {
      const { model, tokenizer } = await load();
      const pieces: string[] = [];
      const streamer = new TextStreamer(tokenizer, {
        callback_function: (text: string) => pieces.push(text),
      });
      await model.generate({ ...(await tokenizer('the old river')), max_new_tokens: 10, streamer });
      return pieces;
    };
    const stock = await run();
    expect(stock.length).toBeGreaterThan(3);
    expect(await patched({ precision: 'f32' }, run)).toEqual(stock);
  });

  it('gives each text of a left-padded batch what it gets alone', async () => {
    const texts = ['the sun', 'a great white horse of the king and', 'his hand was on the world'];
    const generate = async (batch: string[]) => {
      const { model, tokenizer } = await load();
      tokenizer.padding_side = 'left';
      const inputs = await tokenizer(batch, { padding: true });
      const ids = (await model.generate({ ...inputs, max_new_tokens: 8, do_sample: false })) as Tensor;
      return tokenizer.batch_decode(ids, { skip_special_tokens: true });
    };
    const together = await patched({ precision: 'f32' }, () => generate(texts));
    for (const [i, text] of texts.entries()) {
      expect(await patched({ precision: 'f32' }, () => generate([text]))).toEqual([together[i]]);
    }
    expect(together).toEqual(await generate(texts));
  });

  // The cache of the first call is continued by two others: the second of them has to get a copy.
  it('continues a DynamicCache that the caller keeps', async () => {
    const run = async () => {
      const { model, tokenizer } = await load();
      const cache = new DynamicCache();
      const ask = async (text: string) => {
        const inputs = await tokenizer(text);
        const result = await model.generate({
          ...inputs,
          past_key_values: cache,
          max_new_tokens: 5,
          do_sample: false,
          return_dict_in_generate: true,
        });
        const { sequences } = result as unknown as { sequences: Tensor };
        return tokenizer.batch_decode(sequences, { skip_special_tokens: true })[0]!;
      };
      const first = await ask('once the little bird');
      const length = cache.get_seq_length();
      const second = await ask(`${first} and the fire`);
      return { first, second, length, grown: cache.get_seq_length() > length };
    };
    const stock = await run();
    expect(stock.grown).toBe(true);
    expect(await patched({ precision: 'f32' }, run)).toEqual(stock);
    expect(patchReport().at(-1)).toMatchObject({ kvCache: 'native' });
  });

  it('follows schedules by phase, layer and token', async () => {
    const run = async () => {
      const { model, tokenizer } = await load();
      const { logits } = (await model(await tokenizer('the queen and the dog'))) as { logits: Tensor };
      return Array.from(logits.data as Float32Array);
    };
    const at = (schedule: PatchOptions['schedule']) => patched({ schedule: schedule! }, run);
    const [f32, mxfp4] = [await at('f32'), await at('mxfp4')];
    expect(largestDifference(f32, mxfp4)).toBeGreaterThan(1e-3);
    // One run over the prompt, whose first token is token 0.
    expect(await at({ default: 'f32', rules: [{ phase: 'prefill', precision: 'mxfp4' }] })).toEqual(mxfp4);
    // Where a layer is not always exact its cache is tensors, with which exact attention adds up in another order.
    for (const [precision, other, tokens] of [
      ['f32', 'mxfp4', [0, 3]],
      ['mxfp4', 'f32', [1, 3]],
    ] as const) {
      const exact = await at({ default: other, rules: [{ tokens, precision }] });
      expect(largestDifference(exact, f32)).toBeLessThan(1e-5);
    }
    const oneLayer = await at({ default: 'f32', rules: [{ layers: [-1, -1], precision: 'mxfp4' }] });
    expect(oneLayer).not.toEqual(f32);
    expect(largestDifference(oneLayer, f32)).toBeLessThan(largestDifference(mxfp4, f32) * 2);
  });
});

describe('patched encoder-decoder generation', () => {
  interface Loaded {
    readonly model: { readonly sessions: Record<string, { run: (feeds: Feeds) => Promise<Feeds> }> };
    (input: unknown, options: object): Promise<unknown>;
  }
  type Feeds = Record<string, Pick<Tensor, 'location' | 'size'>>;

  // No data of a cache come to JavaScript. Of word timestamps transformers.js keeps the last cache with the result.
  it.each([
    ['text2text-generation', 't5', 'the river and the road', {}, 0],
    ['automatic-speech-recognition', 'whisper', sound, { return_timestamps: 'word', language: 'en' }, 8],
  ] as const)('keeps the cache of %s native', async (task, name, input, others, left) => {
    const generation = { max_new_tokens: 16, do_sample: false, ...others };
    const load = async () => (await pipeline(task, name, options)) as unknown as Loaded;
    const expected = await (await load())(input, generation);
    const [fed, given] = [[] as Feeds[string][], [] as Feeds[string][]];
    const result = await patched({ precision: 'f32' }, async () => {
      const generate = await load();
      expect(patchReport().at(-1)).toMatchObject({ backend: 'native' });
      const session = generate.model.sessions.decoder_model_merged!;
      const run = session.run.bind(session);
      session.run = async (feeds) => {
        for (const [input, tensor] of Object.entries(feeds)) {
          if (input.startsWith('past') && tensor.size > 0) {
            expect(`${input} ${tensor.location}`).toBe(`${input} gpu-buffer`);
            fed.push(tensor);
          }
        }
        const outputs = await run(feeds);
        given.push(
          ...Object.entries(outputs).flatMap(([output, tensor]) =>
            output.startsWith('present') && tensor.size > 0 ? [tensor] : [],
          ),
        );
        return outputs;
      };
      return generate(input, generation);
    });
    expect(result).toEqual(expected);
    const report = patchReport().find(({ model, kvCache }) => model.includes(`/${name}/`) && kvCache);
    expect(report).toMatchObject({ kvCache: 'native tensors' });
    expect(fed.length).toBeGreaterThan(40);
    expect(given.filter(({ location }) => location !== 'none')).toHaveLength(left);
  });
});

describe('worker threads', () => {
  it('are patched on their own', async () => {
    const ask = (precision?: string) =>
      new Promise((resolve, reject) => {
        const worker = new Worker(new URL('worker.mjs', import.meta.url), {
          workerData: { folder, precision },
        });
        worker.once('message', resolve).once('error', reject);
      });
    const [stock, first, second] = await Promise.all([ask(), ask('f32'), ask('f32')]);
    expect(stock).toMatchObject({ replaced: 0 });
    const { text } = stock as { text: string };
    expect([first, second]).toEqual([
      { text, replaced: 2 },
      { text, replaced: 2 },
    ]);
  });
});
