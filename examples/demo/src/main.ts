import { mkdir, writeFile } from 'node:fs/promises';
import { cpus } from 'node:os';
import { join, resolve } from 'node:path';
import { intro, log, outro } from '@clack/prompts';
import { MxattnError } from '@mxattn/core';
import { terminalProgress } from '@mxattn/progress';
import { type DemoOptions, demoOptions, USAGE } from './options.js';
import { pictureRuns } from './pictures.js';
import { reportHtml } from './report.js';
import type { DemoResults, Pictures } from './results.js';
import { textRuns } from './text.js';
import { demoVariants } from './variants.js';

async function demo(options: DemoOptions): Promise<void> {
  intro('mxattn: text and pictures with block-scaled low-precision attention');
  const variants = demoVariants(options.precision);
  const text = await textRuns(variants, options, terminalProgress);
  const pictures = await pictureRuns(variants, options, terminalProgress);
  const results: DemoResults = {
    llm: text.results,
    diffusion: pictures.results,
    replaced: { llm: text.replaced, diffusion: pictures.replaced },
    perplexityTokens: text.tokens,
    machine: { cpu: cpus()[0]?.model ?? '', threads: options.threads, isa: pictures.isa },
  };
  await mkdir(options.out, { recursive: true });
  await writeFile(join(options.out, 'demo.json'), `${JSON.stringify(results, null, 2)}\n`);
  await writePictures(options.out, pictures.pictures);
  const report = join(options.out, 'report.html');
  await writeFile(report, reportHtml(results, pictures.pictures, variants, options));
  for (const { name } of variants) {
    const llm = results.llm[name]!;
    const diffusion = results.diffusion[name]!;
    log.message(
      `${name.padEnd(7)} ${llm.msPerToken.toFixed(2)} ms/token, perplexity ${llm.perplexity.toFixed(3)}; ` +
        `${diffusion.msPerStep.toFixed(0)} ms/step${diffusion.psnr === null ? '' : `, ${diffusion.psnr.toFixed(1)} dB`}`,
    );
  }
  log.message(
    `replaced: ${text.replaced} attentions in the LLM, ${pictures.replaced} in the diffusion model`,
  );
  outro(resolve(report));
}

async function writePictures(folder: string, pictures: Pictures): Promise<void> {
  for (const [image, variants] of pictures) {
    for (const [variant, png] of variants) {
      await writeFile(
        join(folder, `${image.replaceAll(/\W+/g, '-')}.${variant.replaceAll(/\W+/g, '-')}.png`),
        png,
      );
    }
  }
}

try {
  const options = demoOptions(process.argv.slice(2));
  if (options === 'help') console.log(USAGE);
  else await demo(options);
} catch (error) {
  if (!(error instanceof MxattnError)) throw error;
  console.error(`demo: ${error.message}`);
  process.exitCode = 2;
}
