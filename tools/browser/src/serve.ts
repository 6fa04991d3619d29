import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { extname, join } from 'node:path';

/** A page that consists of modules. */
export interface Site {
  /** Directories by the path under which they are served: `/core`. */
  readonly directories: Readonly<Record<string, string>>;
  /** Paths of modules by the names that other modules import them by: an import map. */
  readonly imports: Readonly<Record<string, string>>;
  /** Names of modules by the names of the global variables that hold them. */
  readonly globals: Readonly<Record<string, string>>;
}

const TYPES: Readonly<Record<string, string>> = {
  '.js': 'text/javascript',
  '.mjs': 'text/javascript',
  '.wasm': 'application/wasm',
};

function html({ imports, globals }: Site): string {
  const assignments = Object.entries(globals).map(
    ([name, module]) => `globalThis[${JSON.stringify(name)}] = await import(${JSON.stringify(module)});`,
  );
  return `<!doctype html>
<script type="importmap">${JSON.stringify({ imports })}</script>
<script type="module">${assignments.join('\n')}\nglobalThis.ready = true;</script>`;
}

/** Serves a site on a free port of this machine. */
export async function serve(site: Site): Promise<{ url: string; close(): void }> {
  const server = createServer(async (request, response) => {
    const path = decodeURIComponent(new URL(request.url ?? '/', 'http://localhost').pathname);
    if (path === '/') {
      response.setHeader('content-type', 'text/html').end(html(site));
      return;
    }
    const entry = Object.entries(site.directories).find(([prefix]) => path.startsWith(`${prefix}/`));
    try {
      if (!entry || path.includes('..')) throw new Error('not part of the site');
      const contents = await readFile(join(entry[1], path.slice(entry[0].length)));
      response.setHeader('content-type', TYPES[extname(path)] ?? 'application/octet-stream').end(contents);
    } catch {
      response.writeHead(404).end();
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return { url: `http://127.0.0.1:${port}/`, close: () => server.close() };
}
