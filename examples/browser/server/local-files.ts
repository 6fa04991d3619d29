import { createReadStream, statSync } from 'node:fs';
import { cp } from 'node:fs/promises';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { basename, extname, join, resolve, sep } from 'node:path';
import type { Plugin } from 'vite';
import { FOLDERS } from './files.js';

const TYPES: Readonly<Record<string, string>> = {
  '.json': 'application/json',
  '.mjs': 'text/javascript',
  '.wasm': 'application/wasm',
};

/** Serves models and ONNX Runtime's WebAssembly from this machine, and puts them beside a built page. */
export function localFiles(): Plugin {
  let out = '';
  return {
    name: 'mxattn-local-files',
    configResolved({ root, build }) {
      out = resolve(root, build.outDir);
    },
    configureServer({ middlewares }) {
      middlewares.use(respond);
    },
    async closeBundle() {
      for (const [name, { folder, files }] of Object.entries(FOLDERS)) {
        await cp(folder, join(out, name), {
          recursive: true,
          filter: (source) => source === folder || !files || files.test(basename(source)),
        });
      }
    },
  };
}

function respond(request: IncomingMessage, response: ServerResponse, next: () => void): void {
  const [, name = '', ...rest] = decodeURIComponent(
    new URL(request.url ?? '/', 'http://localhost').pathname,
  ).split('/');
  const entry = FOLDERS[name];
  if (!entry) {
    next();
    return;
  }
  const file = join(entry.folder, ...rest);
  const inside = file.startsWith(entry.folder + sep);
  const stats = inside ? statSync(file, { throwIfNoEntry: false }) : undefined;
  if (!stats?.isFile() || (entry.files && !entry.files.test(basename(file)))) {
    response.writeHead(404).end();
    return;
  }
  response.writeHead(200, {
    'content-type': TYPES[extname(file)] ?? 'application/octet-stream',
    'content-length': stats.size,
    ...HEADERS,
  });
  createReadStream(file).pipe(response);
}

/** Of all responses. */
export const HEADERS = {
  // Lets the page use threads and measure its memory.
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-embedder-policy': 'require-corp',
  // The files are on this machine; browsers without a cache on disk fail on large ones.
  'cache-control': 'no-store',
};
