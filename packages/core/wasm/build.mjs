// Compiles the kernel twice, without and with relaxed SIMD, and writes both as base64 into src/wasm/binaries.ts, so
// that they load alike in Node.js, in browsers and from any bundle. Does nothing while they are up to date.
import { existsSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import asc from 'assemblyscript/asc';

const sources = dirname(fileURLToPath(import.meta.url));
const target = join(sources, '..', 'src', 'wasm', 'binaries.ts');

const changed = Math.max(...readdirSync(sources).map((name) => statSync(join(sources, name)).mtimeMs));
if (!existsSync(target) || statSync(target).mtimeMs < changed) {
  const simd = await compile(['simd']);
  const relaxedSimd = await compile(['simd', 'relaxed-simd']);
  writeFileSync(
    target,
    '// Generated from packages/core/wasm.\n' +
      `export const simd = '${simd}';\nexport const relaxedSimd = '${relaxedSimd}';\n`,
  );
}

async function compile(features) {
  const files = new Map();
  const { error, stderr } = await asc.main(
    [
      'kernel.ts',
      ...['--baseDir', sources],
      ...['--outFile', 'kernel.wasm'],
      ...['-O3', '--noAssert', '--runtime', 'stub', '--importMemory'],
      ...features.flatMap((feature) => ['--enable', feature]),
    ],
    { writeFile: (name, contents) => files.set(name, contents) },
  );
  if (error) {
    console.error(`${error.message}\n${stderr}`);
    process.exit(1);
  }
  return Buffer.from(files.get('kernel.wasm')).toString('base64');
}
