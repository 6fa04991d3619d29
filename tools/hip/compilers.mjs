// Compilers that make machine code for AMD's GPUs without ROCm: clang, and the newer one that comes with Zig.
import { spawn, spawnSync } from 'node:child_process';
import { readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const native = join(dirname(fileURLToPath(import.meta.url)), '..', '..', 'packages', 'ort-op', 'native');

export const architectures = ['gfx90a', 'gfx942', 'gfx950', 'gfx1100', 'gfx1201'];

const candidates = [
  ['clang-19'],
  ['clang-22'],
  ['clang-21'],
  ['clang-20'],
  ['clang'],
  ['zig', 'clang'],
  [process.env.MXATTN_PYTHON ?? 'python3', '-m', 'ziglang', 'clang'],
];

const modes = ['-x', 'hip', '--cuda-device-only', '-nogpulib', '-nogpuinc', '-std=c++17', '-O3'];
const warnings = ['-Wall', '-Wextra', '-Wno-pragma-once-outside-header'];

/** @type {Map<string, { command: string[], version: string } | null>} */
const found = new Map();

/** The first compiler that knows an architecture; null if none does. */
export function compilerFor(architecture) {
  if (!found.has(architecture)) {
    found.set(architecture, candidates.map((command) => probe(command, architecture)).find(Boolean) ?? null);
  }
  return found.get(architecture);
}

function probe(command, architecture) {
  const [program, ...first] = command;
  const { status } = spawnSync(
    program,
    [...first, ...modes, `--offload-arch=${architecture}`, '-S', '-o', '-', '-'],
    { input: '__attribute__((global)) void nothing() {}' },
  );
  if (status !== 0) return null;
  const { stdout } = spawnSync(program, [...first, '--version'], { encoding: 'utf8' });
  return { command, version: /version (\d+)/.exec(stdout)?.[1] ?? 'unknown' };
}

let files = 0;

/** Compiles the kernels. Gives the assembly and what the compiler said. */
export async function assemble(architecture, defines) {
  const { command } = compilerFor(architecture);
  const [program, ...first] = command;
  const output = join(tmpdir(), `mxattn-${process.pid}-${files++}.s`);
  const child = spawn(program, [
    ...first,
    ...modes,
    ...warnings,
    `--offload-arch=${architecture}`,
    ...defines.map((each) => `-D${each}`),
    `-I${native}`,
    '-S',
    '-o',
    output,
    join(native, 'hip', 'kernels', 'kernels.h'),
  ]);
  let said = '';
  child.stderr.on('data', (data) => {
    said += data;
  });
  const status = await new Promise((resolve) => child.on('close', resolve));
  if (status !== 0) throw new Error(`${architecture} ${defines.join(' ')}: ${said}`);
  const assembly = readFileSync(output, 'utf8');
  rmSync(output);
  return { assembly, said };
}
