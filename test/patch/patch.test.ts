import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { MxattnError } from '@mxattn/core';
import { generate, heldOutTokens, openModels, perplexity } from '@mxattn/example-llm';
import { patch, patchReport, unpatch } from '@mxattn/transformers-patch';
import { afterEach, beforeAll, describe, expect, it } from 'vitest';
import { MODELS } from '../session/support.js';

const PROMPT = 'Once upon a time there was a little';

beforeAll(() => openModels(MODELS));
afterEach(unpatch);

describe('text generation in a patched transformers.js', () => {
  it('at f32 gives the same 100 greedy tokens as stock', async () => {
    const stock = await generate(null, PROMPT, 100, 2);
    const patched = await generate({ precision: 'f32', backend: 'native' }, PROMPT, 100, 2);
    expect(patched.text).toBe(stock.text);
    expect(stock.text.length).toBeGreaterThan(PROMPT.length + 100);
    expect(patchReport().at(-1)).toMatchObject({ backend: 'native', left: [] });
    expect(patchReport().at(-1)!.replaced).toHaveLength(8);
    expect(patchReport().at(-1)!.model).toContain('story-llama');
  });

  it('at f32 has the perplexity of stock to 4 digits, at 6 and 4 bits one near it', async () => {
    const ids = await heldOutTokens(`${MODELS}heldout.txt`, 2 * 1024 + 1);
    const of = async (options: Parameters<typeof perplexity>[0]) =>
      (await perplexity(options, ids, 2)).perplexity;
    const stock = await of(null);
    expect((await of({ precision: 'f32', backend: 'native' })).toFixed(4)).toBe(stock.toFixed(4));
    const six = await of({ precision: 'mxfp6', backend: 'native' });
    const four = await of({ precision: 'mxfp4', backend: 'native' });
    expect(Math.abs(six / stock - 1)).toBeLessThan(0.01);
    expect(Math.abs(four / stock - 1)).toBeLessThan(0.1);
    expect(six).not.toBe(stock);
    expect(four).not.toBe(six);
  });
});

/** Runs a script in a process of its own, where transformers.js is imported in a chosen order. */
function script(source: string): string {
  // Package managers' launchers of this test set NODE_PATH, through which modules are found from everywhere.
  const { NODE_PATH, ...env } = process.env;
  const { stdout, stderr, status } = spawnSync(process.execPath, ['--input-type=module', '--eval', source], {
    env,
    cwd: fileURLToPath(new URL('..', import.meta.url)),
    encoding: 'utf8',
  });
  if (status !== 0) throw new Error(stderr);
  return stdout;
}

const USE = `
  env.allowRemoteModels = false;
  env.localModelPath = ${JSON.stringify(MODELS)};
  const generator = await pipeline('text-generation', 'story-llama', { dtype: 'fp32' });
  await generator('Once', { max_new_tokens: 2, do_sample: false });
  console.log(patchReport().map(({ replaced }) => replaced.length).join());
`;

describe('patch()', () => {
  it.each([
    [
      'before transformers.js is imported',
      `import { patch, patchReport } from '@mxattn/transformers-patch';
       patch({ precision: 'mxfp6' });
       const { env, pipeline } = await import('@huggingface/transformers');`,
    ],
    [
      'after transformers.js is imported',
      `import { env, pipeline } from '@huggingface/transformers';
       const { patch, patchReport } = await import('@mxattn/transformers-patch');
       patch({ precision: 'mxfp6' });`,
    ],
    [
      'of the CommonJS build',
      `import { createRequire } from 'node:module';
       const { env, pipeline } = createRequire(import.meta.url)('@huggingface/transformers');
       const { patch, patchReport } = await import('@mxattn/transformers-patch');
       patch({ precision: 'mxfp6' });`,
    ],
  ])('works %s', (_, imports) => {
    expect(script(imports + USE).trim()).toBe('8');
  });

  it('is undone by unpatch()', () => {
    const imports = `
      import { env, pipeline } from '@huggingface/transformers';
      import { patch, patchReport, unpatch } from '@mxattn/transformers-patch';
      patch({ precision: 'mxfp6' });
      unpatch();`;
    expect(script(imports + USE).trim()).toBe('');
  });

  it('names the place where transformers.js is missing', () => {
    const source = `
      import { patch } from '@mxattn/transformers-patch';
      try { patch({ from: 'file:///nowhere/app.js' }); } catch (error) { console.log(error.name, error.message); }`;
    expect(script(source)).toMatch(
      /^MxattnError @huggingface\/transformers is not installed where file:\/\/\/nowhere\/app.js/,
    );
  });

  it.each([
    ['an unknown precision', { precision: 'int1' as 'f32' }, /unknown precision "int1"/],
    ['a schedule by step', { schedule: '3:mxfp6/14:mxfp4/3:mxfp6' }, /depends on the denoising step/],
  ])('refuses %s', (_, options, message) => {
    expect(() => patch(options)).toThrow(MxattnError);
    expect(() => patch(options)).toThrow(message);
  });
});
