import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { addon } from './addon.js';

const FILE_NAMES: Partial<Record<NodeJS.Platform, string>> = {
  darwin: 'libmxattn_ort.dylib',
  win32: 'mxattn_ort.dll',
};

/**
 * The path of the operator as a plain library, for programs that run ONNX Runtime without Node.js: it exports
 * `RegisterCustomOps` and lies beside the addon.
 *
 * @throws MxattnError when the native code was not built.
 */
export function customOpLibrary(): string {
  addon();
  const root = join(dirname(fileURLToPath(import.meta.url)), '..', '..');
  const { resolve } = createRequire(import.meta.url)('node-gyp-build') as { resolve(root: string): string };
  return join(dirname(resolve(root)), FILE_NAMES[process.platform] ?? 'libmxattn_ort.so');
}
