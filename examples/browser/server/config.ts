import { fileURLToPath } from 'node:url';
import { defaultClientConditions, type InlineConfig } from 'vite';
import { HEADERS, localFiles } from './local-files.js';

/** Where `--build` puts the page. */
export const OUT = fileURLToPath(new URL('../../../out/browser', import.meta.url));

export const config: InlineConfig = {
  configFile: false,
  root: fileURLToPath(new URL('../page', import.meta.url)),
  // Works under any path of any server.
  base: './',
  // A missing file is missing, not the page.
  appType: 'mpa',
  logLevel: 'warn',
  plugins: [localFiles()],
  resolve: {
    // ONNX Runtime's WebAssembly is served as files of its own, and there is one copy of it, which patch() changes.
    conditions: ['onnxruntime-web-use-extern-wasm', ...defaultClientConditions],
    dedupe: ['onnxruntime-web', 'onnxruntime-common'],
  },
  // Dependencies are modules already; bundled beforehand, each could have an ONNX Runtime of its own.
  optimizeDeps: { noDiscovery: true, include: [] },
  server: { host: '127.0.0.1', headers: HEADERS },
  preview: { host: '127.0.0.1', headers: HEADERS },
  build: { outDir: OUT, emptyOutDir: true, target: 'es2022', chunkSizeWarningLimit: 4000 },
};
