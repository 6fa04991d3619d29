import { scheduleSvg } from '@mxattn/core';
import { STEPS } from '@mxattn/example-diffusion';
import type { DemoOptions } from './options.js';
import type { DemoResults, Pictures } from './results.js';
import type { Variant } from './variants.js';

const LAYERS = 8;

const STYLE = `
  body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #1b2430; }
  h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; }
  table { border-collapse: collapse; } th, td { padding: .35rem .9rem; text-align: left; border-bottom: 1px solid #dde3ea; }
  td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
  .texts { display: grid; grid-template-columns: repeat(auto-fit, minmax(15rem, 1fr)); gap: 1rem; }
  .texts article { background: #f5f7fa; border-radius: .5rem; padding: .8rem 1rem; }
  .texts mark { background: #ffe7a8; }
  .pictures img { width: 128px; height: 128px; image-rendering: pixelated; border: 1px solid #dde3ea; }
  figure { margin: 1rem 0; overflow-x: auto; } figcaption { color: #5a6675; }
  @media (prefers-color-scheme: dark) { body { background: #14181d; color: #dfe6ee; } .texts article { background: #1f262e; }
    .texts mark { background: #6b5310; color: inherit; } figure svg { background: #fff; } th, td { border-color: #333c46; } }
`;

/** A page with everything in it: texts, pictures, schedules, tables. */
export function reportHtml(
  results: DemoResults,
  pictures: Pictures,
  variants: readonly Variant[],
  options: DemoOptions,
): string {
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>mxattn demo</title>
<style>${STYLE}</style>
<h1>mxattn demo</h1>
<p>The same two models, run ${variants.length} ways on ${results.machine.threads} threads of ${escapeHtml(results.machine.cpu)}
(kernel build ${escapeHtml(results.machine.isa)}). Attention was replaced in ${results.replaced.llm} layers of the language model
and ${results.replaced.diffusion} self-attentions of the diffusion model; everything else is the same.</p>
<ul>${variants.map(({ name, description }) => `<li><b>${escapeHtml(name)}</b>: ${escapeHtml(description)}</li>`).join('')}</ul>
<h2>Text</h2>
${textTable(results)}
<div class="texts">${texts(results)}</div>
<h2>Pictures</h2>
${pictureTable(results)}
${pictureGrid(pictures, variants)}
<h2>Schedules</h2>
${schedules(variants)}
<p>Prompt: “${escapeHtml(options.prompt)}”. Made by <code>npm run demo</code>; the numbers are in <code>demo.json</code>.</p>
</html>
`;
}

function textTable({ llm, perplexityTokens }: DemoResults): string {
  const rows = Object.entries(llm).map(
    ([name, { msPerToken, perplexity }]) =>
      `<tr><td>${escapeHtml(name)}<td class="number">${msPerToken.toFixed(2)}<td class="number">${perplexity.toFixed(4)}`,
  );
  return `<table><tr><th>way<th class="number">ms per token<th class="number">perplexity of
${perplexityTokens.toLocaleString('en')} held-out tokens${rows.join('')}</table>`;
}

/** Each continuation, marked from where it leaves the stock one. */
function texts({ llm }: DemoResults): string {
  const stock = llm.stock?.text ?? '';
  return Object.entries(llm)
    .map(([name, { text }]) => {
      let same = 0;
      while (same < text.length && text[same] === stock[same]) same++;
      const rest = text.slice(same);
      const shown = escapeHtml(text.slice(0, same)) + (rest ? `<mark>${escapeHtml(rest)}</mark>` : '');
      const note = name === 'stock' ? '' : rest ? ' (marked: differs from stock)' : ' (same as stock)';
      return `<article><b>${escapeHtml(name)}</b>${note}<p>${shown}</p></article>`;
    })
    .join('');
}

function pictureTable({ diffusion }: DemoResults): string {
  const rows = Object.entries(diffusion).map(
    ([name, { msPerStep, psnr }]) =>
      `<tr><td>${escapeHtml(name)}<td class="number">${msPerStep.toFixed(1)}<td class="number">${psnr === null ? '' : psnr.toFixed(2)}`,
  );
  return `<table><tr><th>way<th class="number">ms per step<th class="number">PSNR against stock, dB${rows.join('')}</table>`;
}

function pictureGrid(pictures: Pictures, variants: readonly Variant[]): string {
  const head = variants.map(({ name }) => `<th>${escapeHtml(name)}`).join('');
  const rows = [...pictures].map(([image, byVariant]) => {
    const cells = variants.map(({ name }) => {
      const data = Buffer.from(byVariant.get(name)!).toString('base64');
      return `<td><img alt="${escapeHtml(image)}, ${escapeHtml(name)}" src="data:image/png;base64,${data}">`;
    });
    return `<tr><th>${escapeHtml(image)}${cells.join('')}`;
  });
  return `<table class="pictures"><tr><th>${head}${rows.join('')}</table>`;
}

function schedules(variants: readonly Variant[]): string {
  return variants
    .flatMap(({ name, llm, diffusion }) => {
      if (!llm || !diffusion) return [];
      const steps = scheduleSvg(diffusion, { steps: STEPS });
      const layers = scheduleSvg(llm, { layers: LAYERS });
      return [
        `<figure>${steps}<figcaption>${escapeHtml(name)}, pictures: precision of each step</figcaption></figure>`,
        `<figure>${layers}<figcaption>${escapeHtml(name)}, text: precision of each layer</figcaption></figure>`,
      ];
    })
    .join('');
}

function escapeHtml(text: string): string {
  return text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;');
}
