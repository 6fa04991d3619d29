import { readFileSync } from 'node:fs';
import { promptEncoder, type Vocabulary } from './vocabulary.js';

const config = JSON.parse(
  readFileSync(new URL('../../models/emoji-dit/config.json', import.meta.url), 'utf8'),
) as Vocabulary;

/** Encodes prompts with the words of the shipped model. */
export const encodePrompt = promptEncoder(config);
