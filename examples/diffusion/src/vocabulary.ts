import { MxattnError } from '@mxattn/core';

/** The words of the model: part of its config.json. */
export interface Vocabulary {
  readonly vocab: readonly string[];
  readonly max_words: number;
  readonly pad_id: number;
  readonly null_id: number;
}

/**
 * Words to the model's ids; null is the prompt of guidance, no words.
 *
 * @throws MxattnError naming a word that the model does not know, or when there are too many words.
 */
export type EncodePrompt = (prompt: string | null) => number[];

export function promptEncoder(config: Vocabulary): EncodePrompt {
  const ids = new Map(config.vocab.map((word, id) => [word, id]));
  const padded = (words: readonly number[]) => [
    ...words,
    ...new Array<number>(config.max_words - words.length).fill(config.pad_id),
  ];
  return (prompt) => {
    if (prompt === null) return padded([config.null_id]);
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
          throw new MxattnError(
            `the image model does not know the word "${word}"${suggestion(config.vocab, word)}`,
          );
        }
        return id;
      }),
    );
  };
}

/** Words that begin alike. */
function suggestion(vocab: readonly string[], word: string): string {
  for (let length = word.length - 1; length >= 2; length--) {
    const alike = vocab.filter((known) => known.startsWith(word.slice(0, length))).slice(0, 5);
    if (alike.length > 0) return `; it knows ${alike.join(', ')}`;
  }
  return '';
}
