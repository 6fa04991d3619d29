import { spawnSync } from 'node:child_process';
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
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

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
 * @returns Or why they cannot be built.
 */
export function buildFakeDriver(): { readonly folder: string } | { readonly missing: string } {
  if (process.platform !== 'linux') return { missing: 'the fake HIP driver is built on Linux alone' };
  const sources = ['test/hip', 'test/hip/fake', 'hip', 'hip/kernels'].flatMap((folder) =>
    readdirSync(join(NATIVE, folder))
      .filter((name) => /\.(cc|h)$/.test(name))
      .map((name) => join(NATIVE, folder, name)),
  );
  const hash = createHash('sha256');
  for (const file of sources) hash.update(readFileSync(file));
  const folder = join(BUILT, hash.digest('hex').slice(0, 16));
  mkdirSync(BUILT, { recursive: true });
  return alone(`${folder}.lock`, () => (existsSync(folder) ? { folder } : build(folder)));
}

/** Does work while no other process does work under this name. */
function alone<T>(lock: string, work: () => T): T {
  const patience = Date.now() + 10 * 60_000;
  for (;;) {
    try {
      mkdirSync(lock);
      break;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
      if (Date.now() > patience) throw new Error(`another test is building; if none is, remove ${lock}`);
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 200);
    }
  }
  try {
    return work();
  } finally {
    rmdirSync(lock);
  }
}

function build(folder: string): { readonly folder: string } | { readonly missing: string } {
  const work = mkdtempSync(join(BUILT, 'building-'));
  const flags = ['-std=c++17', '-O2', '-fPIC', '-fvisibility=hidden', '-pthread', `-I${NATIVE}`];
  const compile = (...args: string[]) => {
    const { status, stderr, error } = spawnSync('g++', [...flags, ...args], { encoding: 'utf8', cwd: work });
    return status === 0 ? undefined : (error?.message ?? stderr.split('\n').slice(0, 5).join('\n'));
  };
  const objects = architectures.map((name) => `${name}.o`);
  const failure =
    Object.entries(ARCHITECTURES)
      .map(([name, define]) =>
        compile(
          `-DMXATTN_ARCHITECTURE="${name}"`,
          ...(define ? [define] : []),
          '-c',
          `${NATIVE}test/hip/architecture.cc`,
          '-o',
          `${name}.o`,
        ),
      )
      .find((each) => each !== undefined) ??
    compile(
      '-shared',
      '-o',
      'libamdhip64.so.6',
      `${NATIVE}test/hip/fake/runtime.cc`,
      `${NATIVE}test/hip/workgroup.cc`,
      ...objects,
    ) ??
    compile('-shared', '-o', 'libhiprtc.so.6', `${NATIVE}test/hip/fake/compiler.cc`);
  if (failure !== undefined) return { missing: `the fake HIP driver does not build: ${failure}` };
  renameSync(work, folder);
  return { folder };
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
