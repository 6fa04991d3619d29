import { openModel, psnr, STEPS, sample, toPng } from '@mxattn/example-diffusion';
import type { Progress } from '@mxattn/progress';
import type { DemoOptions } from './options.js';
import type { DiffusionResult, Pictures } from './results.js';
import type { Variant } from './variants.js';

const SEED = 20;

/** Draws every picture every way, from the same noise. */
export async function pictureRuns(
  variants: readonly Variant[],
  options: DemoOptions,
  progress: Progress,
): Promise<{ results: Record<string, DiffusionResult>; pictures: Pictures; replaced: number; isa: string }> {
  const results: Record<string, DiffusionResult> = {};
  const pictures = new Map(options.images.map((image) => [image, new Map<string, Uint8Array>()]));
  const stock = new Map<string, Float32Array>();
  let replaced = 0;
  let isa = '';
  for (const { name, diffusion } of variants) {
    const model = await openModel(options.models, {
      threads: options.threads,
      ...(diffusion ? { schedule: diffusion, backend: 'native' } : { backend: 'stock' }),
    });
    const times: number[] = [];
    const ratios: number[] = [];
    await progress(`pictures, ${name}`, STEPS * options.images.length, async (step) => {
      for (const image of options.images) {
        const onStep = (_: number, ms: number) => {
          times.push(ms);
          step(times.length);
        };
        const picture = await sample(model, image, { seed: SEED, onStep });
        if (!stock.has(image)) stock.set(image, picture);
        ratios.push(psnr(picture, stock.get(image)!));
        pictures.get(image)!.set(name, toPng(picture));
      }
    });
    if (diffusion) {
      replaced = model.report.replaced.length;
      isa = model.report.isa ?? '';
    }
    await model.release();
    const mean = ratios.reduce((sum, ratio) => sum + ratio, 0) / ratios.length;
    results[name] = { msPerStep: median(times), psnr: Number.isFinite(mean) ? mean : null };
  }
  return { results, pictures, replaced, isa };
}

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)]!;
}
