import { readFileSync } from 'node:fs';
import { MxattnError } from '@mxattn/core';

interface Config {
  readonly vocab: readonly string[];
  readonly max_words: number;
  readonly pad_id: number;
  readonly null_id: number;
}

const config = JSON.parse(
  readFileSync(new URL('../../models/emoji-dit/config.json', import.meta.url), 'utf8'),
) as Config;
const ids = new Map(config.vocab.map((word, id) => [word, id]));

/** The prompt of guidance: no words. */
export const NULL_PROMPT: readonly number[] = padded([config.null_id]);

/**
 * Words to the model's ids.
 *
 * @throws MxattnError naming a word that the model does not know, or when there are too many words.
 */
export function encodePrompt(prompt: string): number[] {
  const words = prompt.toLowerCase().match(/[a-z]+/g) ?? [];
  if (words.length === 0) throw new MxattnError('the image prompt is empty');
  if (words.length > config.max_words) {
    throw new MxattnError(
      `the image prompt "${prompt}" has ${words.length} words; at most ${config.max_words}`,
    );
  }
  return padded(
    words.map((word) => {
      const id = ids.get(word);
      if (id === undefined) {
        throw new MxattnError(`the image model does not know the word "${word}"${suggestion(word)}`);
      }
      return id;
    }),
  );
}

function padded(words: readonly number[]): number[] {
  return [...words, ...new Array<number>(config.max_words - words.length).fill(config.pad_id)];
}

/** Words that begin alike. */
function suggestion(word: string): string {
  for (let length = word.length - 1; length >= 2; length--) {
    const alike = config.vocab.filter((known) => known.startsWith(word.slice(0, length))).slice(0, 5);
    if (alike.length > 0) return `; it knows ${alike.join(', ')}`;
  }
  return '';
}
