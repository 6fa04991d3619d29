import { mkdirSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gunzipSync } from 'node:zlib';
import { writeModel } from '@mxattn/ort-op';
import { withWeights } from '../graph/weights.js';

const folder = fileURLToPath(new URL('../models/families/', import.meta.url));

/**
 * Writes the small random-weight models, one of each family, in the layout of transformers.js.
 *
 * @returns The folder to load them from, with a slash at its end.
 */
export function writeFamilies(): string {
  const target = mkdtempSync(join(tmpdir(), 'mxattn-families-'));
  for (const file of readdirSync(folder, { recursive: true, encoding: 'utf8' })) {
    if (!file.endsWith('.gz')) continue;
    const path = join(target, file.replace(/\.gz$/, ''));
    const bytes = gunzipSync(readFileSync(join(folder, file)));
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, path.endsWith('.onnx') ? writeModel(withWeights(bytes)) : bytes);
  }
  return `${target}/`;
}
