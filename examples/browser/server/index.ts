import { build, createServer, preview } from 'vite';
import { config, OUT } from './config.js';

/** Serves the page on this machine, by default on a free port. */
export async function servePage({
  host = '127.0.0.1',
  port = 0,
}: {
  host?: string;
  port?: number;
} = {}): Promise<{
  readonly urls: readonly string[];
  close(): Promise<void>;
}> {
  const server = await createServer({ ...config, server: { ...config.server, host, port } });
  await server.listen();
  const { local = [], network = [] } = server.resolvedUrls ?? {};
  return { urls: [...local, ...network], close: () => server.close() };
}

/** Builds the page with all its files; returns the folder. */
export async function buildPage(): Promise<string> {
  await build(config);
  return OUT;
}

/** Serves the built page on a free port. */
export async function serveBuiltPage(): Promise<{ readonly url: string; close(): Promise<void> }> {
  const server = await preview({ ...config, preview: { ...config.preview, port: 0 } });
  return { url: server.resolvedUrls?.local[0] ?? '', close: () => server.close() };
}
