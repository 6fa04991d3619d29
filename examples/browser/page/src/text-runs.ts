import { Card } from './card.js';
import { make } from './elements.js';
import type { Environment } from './environment.js';
import { progress } from './progress.js';
import { type TextResult, writeText } from './text-model.js';
import { typical } from './timing.js';
import type { Variant } from './variants.js';

export interface TextSettings {
  readonly prompt: string;
  readonly tokens: number;
}

/** Writes the story once per variant, each into a card. */
export async function runTexts(
  variants: readonly Variant[],
  { prompt, tokens }: TextSettings,
  { device }: Environment,
  results: HTMLElement,
  signal: AbortSignal,
): Promise<void> {
  let stock: TextResult | undefined;
  for (const variant of variants) {
    const story = make('p', { className: 'story' }, prompt);
    const card = new Card(variant, story);
    results.append(card.root);
    progress.say(`${variant.title}: loading`);
    progress.load(0);
    progress.work(0, tokens);
    const result = await writeText(variant, {
      device,
      prompt,
      tokens,
      signal,
      onLoad: progress.load,
      onText: (more) => story.append(more),
      onToken: (count) => {
        if (count === 1) progress.say(`${variant.title}: writing ${tokens} tokens`);
        progress.work(count, tokens);
      },
    });
    card.time('token', typical(result.times), stock && typical(stock.times));
    if (stock) card.fact('Same tokens', `the first ${same(stock.ids, result.ids)} of ${stock.ids.length}`);
    card.report(result.report);
    card.done();
    if (variant.name === 'stock') stock = result;
  }
}

/** Tokens until two texts differ. */
function same(a: readonly bigint[], b: readonly bigint[]): number {
  const differing = a.findIndex((id, i) => id !== b[i]);
  return differing < 0 ? a.length : differing;
}
