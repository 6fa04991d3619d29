// Cross-compiles the kernel for 64-bit Arm and compares its builds with each other in an emulator. Needs
// g++-aarch64-linux-gnu and qemu-user.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const native = join(dirname(fileURLToPath(import.meta.url)), '..', 'packages', 'ort-op', 'native');
const out = mkdtempSync(join(tmpdir(), 'mxattn-arm64-'));
const flags = ['-std=gnu++17', '-O3', '-Wall', '-Wextra', '-Wno-psabi', `-I${native}`];

function run(command, args) {
  const { status, error } = spawnSync(command, args, { stdio: 'inherit' });
  if (error) throw new Error(`${command} cannot be run: ${error.message}`);
  if (status !== 0) throw new Error(`${command} failed`);
}

function compile(source, ...extra) {
  const object = join(out, `${source.replaceAll('/', '_')}.o`);
  run('aarch64-linux-gnu-g++', [...flags, ...extra, '-c', join(native, source), '-o', object]);
  return object;
}

try {
  const objects = [
    compile('cpu/portable.cc'),
    compile('cpu/neon.cc', '-march=armv8.2-a+dotprod'),
    ...['cpu/dispatch.cc', 'cpu/kv_cache.cc', 'cpu/scratch.cc', 'test/compare_builds.cc'].map((each) =>
      compile(each),
    ),
  ];
  const program = join(out, 'compare_builds');
  run('aarch64-linux-gnu-g++', [...objects, '-static', '-o', program]);
  run('qemu-aarch64', [program]);
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
} finally {
  rmSync(out, { recursive: true });
}
