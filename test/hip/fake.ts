import { execFile, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmdirSync,
} from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const execute = promisify(execFile);
const NATIVE = fileURLToPath(new URL('../../packages/ort-op/native/', import.meta.url));
const BUILT = fileURLToPath(new URL('../../packages/ort-op/build/fake-hip/', import.meta.url));

/** The architectures whose kernels are emulated, and what tells the kernels so. */
const ARCHITECTURES = {
  generic: '',
  gfx90a: '-DMXATTN_GFX90A=1',
  gfx942: '-DMXATTN_GFX942=1',
  gfx950: '-DMXATTN_GFX950=1',
  gfx1100: '-DMXATTN_GFX11=1',
  gfx1201: '-DMXATTN_GFX12=1',
} as const;

export const architectures = Object.keys(ARCHITECTURES) as (keyof typeof ARCHITECTURES)[];

/**
 * A folder with libraries in the place of ROCm's (native/test/hip/fake), built once for each state of the sources.
 *
 * @returns Or what is missing to build them.
 */
export async function buildFakeDriver(): Promise<{ readonly folder: string } | { readonly missing: string }> {
  if (process.platform !== 'linux') return { missing: 'the fake HIP driver is built on Linux alone' };
  if (spawnSync('g++', ['--version']).status !== 0) return { missing: 'the fake HIP driver needs g++' };
  const sources = ['test/hip', 'test/hip/fake', 'hip', 'hip/kernels'].flatMap((folder) =>
    readdirSync(join(NATIVE, folder))
      .filter((name) => /\.(cc|h)$/.test(name))
      .map((name) => join(NATIVE, folder, name)),
  );
  const hash = createHash('sha256');
  for (const file of sources) hash.update(readFileSync(file));
  const folder = join(BUILT, hash.digest('hex').slice(0, 16));
  mkdirSync(BUILT, { recursive: true });
  await alone(`${folder}.lock`, async () => {
    if (!existsSync(folder)) await build(folder);
  });
  return { folder };
}

/** Does work while no other process does work under this name. */
async function alone(lock: string, work: () => Promise<void>): Promise<void> {
  const patience = Date.now() + 10 * 60_000;
  for (;;) {
    try {
      mkdirSync(lock);
      break;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
      if (Date.now() > patience) throw new Error(`another test is building; if none is, remove ${lock}`);
      await setTimeout(200);
    }
  }
  try {
    await work();
  } finally {
    rmdirSync(lock);
  }
}

async function build(folder: string): Promise<void> {
  const work = mkdtempSync(join(BUILT, 'building-'));
  const flags = ['-std=c++17', '-O2', '-fPIC', '-fvisibility=hidden', '-pthread', `-I${NATIVE}`];
  const compile = async (...args: string[]) => {
    await execute('g++', [...flags, ...args], { cwd: work });
  };
  const waiting = Object.entries(ARCHITECTURES);
  const compileNext = async (): Promise<void> => {
    const next = waiting.pop();
    if (!next) return;
    const [name, define] = next;
    const defines = [`-DMXATTN_ARCHITECTURE="${name}"`, ...(define ? [define] : [])];
    await compile(...defines, '-c', `${NATIVE}test/hip/architecture.cc`, '-o', `${name}.o`);
    await compileNext();
  };
  await Promise.all(Array.from({ length: availableParallelism() }, compileNext));
  const runtime = [`${NATIVE}test/hip/fake/runtime.cc`, `${NATIVE}test/hip/workgroup.cc`];
  const objects = architectures.map((name) => `${name}.o`);
  await compile('-shared', '-o', 'libamdhip64.so.6', ...runtime, ...objects);
  await compile('-shared', '-o', 'libhiprtc.so.6', `${NATIVE}test/hip/fake/compiler.cc`);
  renameSync(work, folder);
}

/** What is alive in the fake driver, and how often it was asked for something. */
export interface Counts {
  readonly memory?: number;
  readonly pinned?: number;
  readonly streams?: number;
  readonly events?: number;
  readonly modules?: number;
  readonly programs?: number;
  readonly allocations?: number;
  readonly launches?: number;
  readonly compilations?: number;
}

/** Where the libraries count, which are loaded once in a process. */
const counts = mkdtempSync(join(tmpdir(), 'mxattn-fake-hip-'));
let serial = 0;

/** The fake driver in this process: every GPU that is opened from now on is one of its. */
export class FakeDriver {
  readonly cache = mkdtempSync(join(tmpdir(), 'mxattn-cache-'));

  constructor(readonly folder: string) {
    process.env.MXATTN_HIP = folder;
    process.env.MXATTN_GPU_DRIVER = 'hip';
    process.env.MXATTN_FAKE_HIP_COUNTS = counts;
    process.env.XDG_CACHE_HOME = this.cache;
  }

  /** What fails from now on: a call by its name, and which one of several; see native/test/hip/fake/faults.h. */
  fault(what: string): void {
    process.env.MXATTN_FAKE_HIP_FAULT = `${what}#${serial++}`;
  }

  /** The GPUs that there are from now on, by architecture. */
  gpus(...names: readonly string[]): void {
    // What is written for any GPU runs on one that it knows nothing of.
    process.env.MXATTN_FAKE_HIP_GPUS = names.map((name) => (name === 'generic' ? 'gfx1030' : name)).join();
  }

  counted(): Counts {
    return Object.assign(
      {},
      ...['runtime.json', 'compiler.json'].map((name) => {
        const file = join(counts, name);
        return existsSync(file) ? JSON.parse(readFileSync(file, 'utf8')) : {};
      }),
    ) as Counts;
  }

  /** What is alive. */
  alive(): Record<string, number> {
    const { memory = 0, pinned = 0, streams = 0, events = 0, modules = 0, programs = 0 } = this.counted();
    return { memory, pinned, streams, events, modules, programs };
  }
}

export const nothing = { memory: 0, pinned: 0, streams: 0, events: 0, modules: 0, programs: 0 };
