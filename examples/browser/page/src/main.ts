import type { Vocabulary } from '@mxattn/example-diffusion/web';
import { address } from './address.js';
import { byId, make } from './elements.js';
import { type Environment, findEnvironment } from './environment.js';
import { showError } from './errors.js';
import { pageMemory } from './memory.js';
import { pauseAfterRuns } from './pauses.js';
import { type Repaint, runPictures } from './picture-runs.js';
import { progress } from './progress.js';
import { applyQuery } from './query.js';
import { ort, useLocalFiles } from './runtime.js';
import { Settings } from './settings.js';
import { runTexts } from './text-runs.js';

const form = byId('settings', HTMLFormElement);
const run = byId('run', HTMLButtonElement);
const stop = byId('stop', HTMLButtonElement);
const results = byId('results', HTMLElement);
const gain = byId('gain', HTMLInputElement);

async function start(): Promise<void> {
  run.disabled = true;
  const [environment, llm, vocabulary] = await Promise.all([
    findEnvironment(),
    json<{ num_hidden_layers: number }>('models/story-llama/config.json'),
    json<Vocabulary>('models/emoji-dit/config.json'),
  ]);
  byId('environment', HTMLElement).textContent = environment.description;
  // The first three stand for no word.
  byId('words', HTMLDataListElement).append(
    ...vocabulary.vocab.slice(3).map((value) => make('option', { value })),
  );
  useLocalFiles();
  // A run on the processor leaves the page no time.
  if (environment.device === 'wasm') pauseAfterRuns(ort.InferenceSession);
  applyQuery(form);
  const settings = new Settings(form, llm.num_hidden_layers, showError);
  const repaints: Repaint[] = [];
  gain.addEventListener('input', () => {
    byId('gain-value', HTMLOutputElement).value = `${gain.value}×`;
    for (const repaint of repaints) repaint(gain.valueAsNumber);
  });
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    repaints.length = 0;
    void runAll(settings, environment, vocabulary, (repaint) => {
      byId('gain-label', HTMLElement).hidden = false;
      repaints.push(repaint);
      repaint(gain.valueAsNumber);
    });
  });
  run.disabled = false;
}

async function runAll(
  settings: Settings,
  environment: Environment,
  vocabulary: Vocabulary,
  onDifference: (repaint: Repaint) => void,
): Promise<void> {
  const controller = new AbortController();
  const abort = () => controller.abort();
  showError(null);
  results.replaceChildren();
  byId('gain-label', HTMLElement).hidden = true;
  stop.addEventListener('click', abort);
  run.disabled = true;
  stop.disabled = false;
  try {
    const { variants } = settings;
    if (variants.length === 0) throw new Error('choose at least one thing to compare');
    if (settings.model === 'text') {
      const text = { prompt: settings.value('prompt'), tokens: settings.number('tokens') };
      await runTexts(variants, text, environment, results, controller.signal);
    } else {
      const picture = {
        prompt: `${settings.value('word1')} ${settings.value('word2')}`.trim(),
        steps: settings.number('steps'),
        seed: settings.number('seed'),
        vocabulary,
      };
      await runPictures(variants, picture, environment, results, controller.signal, onDifference);
    }
    progress.say('Done.');
    void showMemory();
  } catch (error) {
    progress.say(controller.signal.aborted ? 'Stopped.' : 'Failed.');
    if (!controller.signal.aborted) showError(error);
  } finally {
    stop.removeEventListener('click', abort);
    run.disabled = false;
    stop.disabled = true;
  }
}

async function showMemory(): Promise<void> {
  const bytes = await pageMemory();
  if (bytes === undefined) return;
  const line = byId('memory', HTMLElement);
  line.hidden = false;
  line.textContent = `Memory of this page, without the GPU's: ${(bytes / 2 ** 20).toFixed(0)} MiB.`;
}

async function json<T>(file: string): Promise<T> {
  const response = await fetch(address(file));
  if (!response.ok) throw new Error(`cannot fetch ${address(file)}: status ${response.status}`);
  return (await response.json()) as T;
}

start().catch(showError);
