// Embeds the WGSL beside it into sources.ts, so that it loads alike in Node.js, in browsers and from any bundle. Does
// nothing while that is up to date.
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const directory = dirname(fileURLToPath(import.meta.url));
const target = join(directory, 'sources.ts');
const sources = readdirSync(directory)
  .filter((name) => name.endsWith('.wgsl'))
  .sort()
  .map((name) => [basename(name, '.wgsl'), readFileSync(join(directory, name), 'utf8')]);
const text = `// Generated from the WGSL files of this directory.
export const sources = ${JSON.stringify(Object.fromEntries(sources), null, 2)} as const;
`;
if (!existsSync(target) || readFileSync(target, 'utf8') !== text) writeFileSync(target, text);
