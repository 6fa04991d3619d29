import { cpus } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { findChromium, withPage } from '@mxattn/browser';
import { terminalProgress } from '@mxattn/progress';
import type * as measurement from './measure-wasm.js';
import { measureWasm } from './measure-wasm.js';
import type { BenchmarkResult, Row } from './row.js';

/** The WebAssembly kernel beside ONNX Runtime Web, in this Node.js and, where there is one, in Chromium. */
export async function wasmBenchmark(): Promise<BenchmarkResult> {
  const engine = `Node.js ${process.versions.node.split('.')[0]}`;
  const rows = await terminalProgress(`WebAssembly in ${engine}`, 1, () => measureWasm(engine));
  const executable = findChromium();
  if (executable)
    rows.push(...(await terminalProgress('in Chromium', 1, () => measureInChromium(executable))));
  else console.warn('skipped: no Chromium found; MXATTN_CHROMIUM can name one');
  return { machine: { cpu: cpus()[0]?.model ?? '', threads: 1 }, rows };
}

function measureInChromium(executable: string): Promise<Row[]> {
  const here = dirname(fileURLToPath(import.meta.url));
  const directoryOf = (module: string) => dirname(fileURLToPath(import.meta.resolve(module)));
  const site = {
    directories: {
      '/bench': here,
      '/core': directoryOf('@mxattn/core'),
      '/ort': directoryOf('onnxruntime-web'),
      // The directory of the package's modules, which import each other upwards from `wire`.
      '/protobuf': join(directoryOf('@bufbuild/protobuf/wire'), '..'),
    },
    imports: {
      '@mxattn/core': '/core/index.js',
      'onnxruntime-web': '/ort/ort.wasm.min.mjs',
      '@bufbuild/protobuf/wire': '/protobuf/wire/index.js',
    },
    globals: { bench: '/bench/measure-wasm.js' },
  };
  return withPage(executable, site, async (page) => {
    const version = page.context().browser()?.version().split('.')[0];
    return page.evaluate((engine) => {
      const { bench } = globalThis as unknown as { bench: typeof measurement };
      return bench.measureWasm(engine);
    }, `Chromium ${version}`);
  });
}
