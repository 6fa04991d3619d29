import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { MxattnError, schedule } from '@mxattn/core';
import { encodePrompt } from '@mxattn/example-diffusion';

export interface DemoOptions {
  readonly prompt: string;
  readonly images: readonly string[];
  /** One precision to compare with stock, in place of the usual three ways. */
  readonly precision: string | undefined;
  readonly tokens: number;
  readonly threads: number;
  readonly models: string;
  readonly out: string;
}

export const USAGE = `npm run demo -- [options]
  --prompt TEXT      text to continue (default: Once upon a time there was a little)
  --image WORDS      picture to draw, may be given several times (default: red heart, cat face, panda face, france flag)
  --precision NAME   compare only this precision with stock: f32, mxfp6 or mxfp4
  --tokens N         tokens to generate (default 100)
  --threads N        threads within an operator (default 2)
  --models FOLDER    where story-llama, emoji-dit and heldout.txt are (default examples/models)
  --out FOLDER       where report.html, demo.json and the pictures go (default out/demo)`;

/** @throws MxattnError for an unknown option, a word the image model does not know, an unknown precision. */
export function demoOptions(args: readonly string[]): DemoOptions | 'help' {
  const { values } = parse(args);
  if (values.help) return 'help';
  const images = values.image ?? ['red heart', 'cat face', 'panda face', 'france flag'];
  for (const image of images) encodePrompt(image);
  if (values.precision !== undefined) schedule(values.precision);
  if (values.prompt?.trim() === '') throw new MxattnError('--prompt is empty');
  return {
    prompt: values.prompt ?? 'Once upon a time there was a little',
    images,
    precision: values.precision,
    tokens: positive('tokens', values.tokens ?? '100'),
    threads: positive('threads', values.threads ?? '2'),
    models: values.models ?? fileURLToPath(new URL('../../models/', import.meta.url)),
    out: values.out ?? 'out/demo',
  };
}

function parse(args: readonly string[]) {
  const one = { type: 'string' } as const;
  try {
    return parseArgs({
      args: [...args],
      options: {
        prompt: one,
        image: { type: 'string', multiple: true },
        precision: one,
        tokens: one,
        threads: one,
        models: one,
        out: one,
        help: { type: 'boolean', short: 'h' },
      },
    });
  } catch (error) {
    throw new MxattnError(`${(error as Error).message.split('. ')[0]}; see npm run demo -- --help`);
  }
}

function positive(name: string, text: string): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 1)
    throw new MxattnError(`--${name} is "${text}", expected a number from 1`);
  return value;
}
