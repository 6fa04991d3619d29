import { psnr, type Vocabulary } from '@mxattn/example-diffusion/web';
import { paint, paintDifference, pictureCanvas } from './canvas.js';
import { Card } from './card.js';
import { make } from './elements.js';
import type { Environment } from './environment.js';
import { drawPicture, type PictureResult } from './picture-model.js';
import { progress } from './progress.js';
import { typical } from './timing.js';
import type { Variant } from './variants.js';

export interface PictureSettings {
  readonly prompt: string;
  readonly steps: number;
  readonly seed: number;
  readonly vocabulary: Vocabulary;
}

/** Paints the differences again with another amplification. */
export type Repaint = (gain: number) => void;

/** Draws the picture once per variant, each into a card with its difference from full precision. */
export async function runPictures(
  variants: readonly Variant[],
  settings: PictureSettings,
  { device }: Environment,
  results: HTMLElement,
  signal: AbortSignal,
  onDifference: (repaint: Repaint) => void,
): Promise<void> {
  let stock: PictureResult | undefined;
  for (const variant of variants) {
    const canvas = pictureCanvas(`${settings.prompt}, ${variant.title}`);
    const figures = make('div', {}, make('figure', {}, canvas));
    const card = new Card(variant, figures);
    results.append(card.root);
    progress.say(`${variant.title}: loading`);
    progress.load(0);
    progress.work(0, settings.steps);
    const result = await drawPicture(variant, {
      ...settings,
      device,
      signal,
      onLoad: progress.load,
      onStart: () => progress.say(`${variant.title}: drawing in ${settings.steps} steps`),
      onStep: (done) => progress.work(done, settings.steps),
    });
    paint(canvas, result.picture);
    card.time('step', typical(result.times), stock && typical(stock.times));
    if (stock) {
      const { picture } = stock;
      card.fact('PSNR', `${psnr(picture, result.picture).toFixed(1)} dB against full precision`);
      const difference = pictureCanvas(`difference of ${variant.title} from full precision`);
      difference.className = 'difference';
      figures.append(
        make('figure', {}, difference, make('figcaption', {}, 'Difference from full precision, amplified')),
      );
      onDifference((gain) => paintDifference(difference, picture, result.picture, gain));
    }
    card.report(result.report);
    card.done();
    if (variant.name === 'stock') stock = result;
  }
}
