import { spawnSync } from 'node:child_process';
import {
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { attentionSpec, precision } from '@mxattn/core';
import {
  createSession,
  gpuCompiler,
  hipBackend,
  listGpus,
  type MxattnSession,
  type SessionDevice,
} from '@mxattn/ort-op';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { normal, sameBytes } from '../conformance/random.js';
import { floats, LLM, llmFeeds, someTokens } from '../session/support.js';
import { buildFakeDriver, FakeDriver, nothing } from './fake.js';

const main = fileURLToPath(new URL('../../packages/transformers-patch/dist/cli/main.js', import.meta.url));

const built = await buildFakeDriver();
if ('missing' in built) console.warn(`skipped: ${built.missing}`);

const spec = attentionSpec({ heads: 2, queryLength: 40, keyLength: 70, headSize: 64 });
const tensors = {
  query: normal(2 * 40 * 64, 1),
  key: normal(2 * 70 * 64, 2),
  value: normal(2 * 70 * 64, 3),
};

describe.skipIf('missing' in built)('the GPU driver', () => {
  const folder = 'folder' in built ? built.folder : '';
  let driver: FakeDriver;
  const warnings: string[] = [];
  const warned = (warning: Error) => warnings.push(warning.message);

  beforeEach(() => {
    driver = new FakeDriver(folder);
    driver.gpus('gfx942:sramecc+:xnack-');
    driver.fault('');
    warnings.length = 0;
    process.on('warning', warned);
  });
  // Whatever a test did, all that it took is given back.
  afterEach(() => {
    process.off('warning', warned);
    expect(driver.alive()).toEqual(nothing);
  });

  async function attend(gpu = 0, backend = hipBackend({ gpu })): Promise<Float32Array> {
    try {
      return await backend.attention(tensors, spec, precision('mxfp6'));
    } finally {
      backend.release();
    }
  }

  async function message(work: () => unknown): Promise<string> {
    try {
      await work();
    } catch (error) {
      return (error as Error).message;
    }
    throw new Error('nothing was thrown');
  }

  const open = (device: SessionDevice) =>
    createSession(LLM, { device, precision: 'mxfp6', threads: 2, kvCache: 'tensors', logSeverityLevel: 4 });
  const logits = async (session: MxattnSession) =>
    floats((await session.run(llmFeeds(someTokens(20)))).logits);

  async function onCpu(): Promise<Float32Array> {
    const session = await open('cpu');
    expect(session.report.device).toBe('cpu');
    const out = await logits(session);
    await session.release();
    return out;
  }

  it('lists GPUs with their architectures', () => {
    driver.gpus('gfx942:sramecc+:xnack-', 'gfx1201');
    expect(listGpus()).toEqual({
      gpus: ['gfx942', 'gfx1201'].map((architecture) => ({
        driver: 'HIP',
        name: 'Emulated GPU',
        architecture,
        memory: 2 ** 30,
        multiprocessors: 4,
      })),
      why: '',
    });
    expect(gpuCompiler()).toEqual({ compiler: 'hiprtc 6.0' });
  });

  it('is what mxattn doctor shows', () => {
    const doctor = () => {
      const { stdout } = spawnSync(process.execPath, [main, 'doctor', '--json'], { encoding: 'utf8' });
      const findings = JSON.parse(stdout) as {
        what: string;
        found: string;
        remedy: string;
        works: boolean;
      }[];
      return findings.find(({ what }) => what === 'GPU kernels (HIP, CUDA)')!;
    };
    driver.gpus('gfx942:sramecc+:xnack-', 'gfx1201');
    expect(doctor()).toMatchObject({
      works: true,
      found:
        'GPU 0: Emulated GPU, gfx942, HIP, 4 multiprocessors, 1 GiB; GPU 1: Emulated GPU, gfx1201, HIP, 4 multiprocessors, ' +
        '1 GiB; compiled by hiprtc 6.0',
      remedy: '',
    });
    driver.fault('init');
    expect(doctor()).toMatchObject({
      works: false,
      found: expect.stringContaining(
        'no ROCm-capable device is detected (100); is there an AMD GPU that ROCm supports',
      ),
      remedy: "install the driver of the GPU; without one sessions run on the CPU kernel (device 'cpu')",
    });
  });

  it('computes on any of several GPUs', async () => {
    driver.gpus('gfx942', 'gfx1100');
    expect(sameBytes(await attend(0), await attend(0))).toBe(true);
    expect((await attend(1)).every(Number.isFinite)).toBe(true);
    expect(await message(() => hipBackend({ gpu: 2 }))).toBe('there is no GPU 2; the last is GPU 1');
  });

  it('allocates nothing after the first call of a size', async () => {
    const backend = hipBackend();
    await backend.attention(tensors, spec, precision('mxfp6'));
    const { allocations, launches } = driver.counted();
    for (let i = 0; i < 3; i++) await backend.attention(tensors, spec, precision('mxfp6'));
    backend.release();
    expect(driver.counted().allocations).toBe(allocations);
    expect(driver.counted().launches).toBeGreaterThan(launches!);
  });

  it('takes calls at the same time in turns', async () => {
    const backend = hipBackend();
    const outs = await Promise.all(
      Array.from({ length: 4 }, () => backend.attention(tensors, spec, precision('mxfp4'))),
    );
    backend.release();
    expect(outs.every((out) => sameBytes(out, outs[0]!))).toBe(true);
  });

  describe('a missing driver', () => {
    const elsewhere = (files: readonly string[]) => {
      const place = mkdtempSync(join(tmpdir(), 'mxattn-rocm-'));
      for (const file of files) symlinkSync(join(folder, file), join(place, file));
      process.env.MXATTN_HIP = place;
      return place;
    };

    it('is named with what was tried and the remedy', async () => {
      const place = elsewhere([]);
      const why =
        `HIP: none of ${place}/libamdhip64.so.7, ${place}/libamdhip64.so.6, ${place}/libamdhip64.so is there; ` +
        "install ROCm 6 or newer (or AMD's driver on Windows), or name the folder of its libraries in MXATTN_HIP";
      expect(listGpus()).toEqual({ gpus: [], why });
      expect(await message(hipBackend)).toBe(`there is no GPU to use. ${why}`);
      expect(await message(() => open('gpu'))).toBe(`there is no GPU to use. ${why}`);
    });

    it('leaves a session of device auto on the processor, announced once', async () => {
      elsewhere([]);
      const sessions = [await open('auto'), await open('auto')];
      for (const session of sessions) {
        expect(session.report).toMatchObject({ backend: 'native', device: 'cpu' });
        expect(session.report.reason).toMatch(/^there is no GPU to use\. HIP: none of/);
        expect(sameBytes(await logits(session), await onCpu())).toBe(true);
        await session.release();
      }
      await new Promise(setImmediate);
      expect(warnings.filter((text) => text.startsWith('attention runs on the CPU kernel'))).toHaveLength(1);
    });

    it('is told from a broken one', () => {
      const place = elsewhere([]);
      writeFileSync(join(place, 'libamdhip64.so.6'), 'not a library');
      expect(listGpus().why).toMatch(/libamdhip64\.so\.6: file too short|invalid ELF header/);
    });

    it('may be the compiler alone', async () => {
      elsewhere(['libamdhip64.so.6']);
      expect(gpuCompiler().error).toMatch(/^none of .*libhiprtc\.so\.7.* is there; install ROCm/);
      expect(await message(() => open('gpu'))).toMatch(/libhiprtc/);
      const session = await open('auto');
      expect(session.report).toMatchObject({ device: 'cpu', reason: expect.stringContaining('libhiprtc') });
      await session.release();
    });
  });

  it('says why there is no device', async () => {
    driver.fault('init');
    expect(listGpus().why).toBe(
      `HIP: hipInit of ${folder}/libamdhip64.so.6 failed: no ROCm-capable device is detected (100); is there an AMD GPU ` +
        'that ROCm supports, is this user in the groups render and video, and does HIP_VISIBLE_DEVICES not hide it?',
    );
    driver.fault('count');
    expect(listGpus().why).toBe('HIP: no GPU; does HIP_VISIBLE_DEVICES hide it?');
  });

  // What is injected, and the message with its remedy. Names, addresses and sizes are of the fake.
  const failures: [fault: string, message: string][] = [
    ['stream', 'creating a stream failed: HIP says out of memory (2); use a shorter context'],
    ['event', 'creating an event failed: HIP says out of memory (2); use a shorter context'],
    ['pinned', 'allocating 8.0 MiB of page-locked host memory failed: HIP says out of memory (2)'],
    [
      'compile',
      'hiprtc 6.0 does not compile the kernels for gfx942 (HIPRTC_ERROR_COMPILATION, 6); it may be too old',
    ],
    ['compile', "It says: mxattn.hip:12:3: error: unknown type name 'wave'"],
    ['load', 'loading the kernels for gfx942 failed: HIP says no kernel image is available'],
    ['load', 'the driver and its compiler do not fit each other; update both'],
    ['function', 'finding kernel quantise_rows'],
    [
      'allocation',
      'of 1024.0 MiB failed: HIP says out of memory (2); use a shorter context, a smaller batch or',
    ],
    ['copy', 'copying to the GPU failed: HIP says invalid argument (1)'],
    ['copy:2', 'copying from the GPU failed: HIP says invalid argument (1)'],
    ['launch', 'launching kernel quantise_rows'],
    [
      'launch:2',
      'HIP says out of resources (701); the kernel does not fit this GPU; use the CPU kernel and report this',
    ],
    [
      'lost',
      'HIP says unspecified launch failure (719); the GPU is lost to this process; restart it, and see',
    ],
  ];

  it.each(failures)('names what fails and the remedy: %s: %s', async (fault, expected) => {
    driver.fault(fault);
    expect(await message(attend)).toContain(expected);
  });

  it.each([...new Set(failures.map(([fault]) => fault))])(
    'fails a session of device gpu and not one of device auto: %s',
    async (fault) => {
      const expected = await onCpu();
      driver.fault(fault);
      expect(
        await message(async () => {
          const session = await open('gpu');
          try {
            await session.run(llmFeeds(someTokens(20)));
          } finally {
            await session.release();
          }
        }),
      ).toMatch(/HIP says|does not compile/);

      driver.fault(fault);
      const session = await open('auto');
      const out = await logits(session);
      // Layers before the failure were the GPU's.
      if (session.report.reason === undefined) throw new Error('nothing failed');
      expect(session.report.device).toBe('cpu');
      expect(out.every(Number.isFinite)).toBe(true);
      driver.fault('');
      expect(sameBytes(await logits(session), expected)).toBe(true);
      await session.release();
    },
  );

  it.each(['tensors', 'native'] as const)(
    'survives running out of memory at every allocation: cache of %s',
    async (kvCache) => {
      let failed = 0;
      for (let n = 1; ; n++) {
        driver.fault(`allocation:${n}+`);
        const session = await createSession(LLM, {
          device: 'auto',
          threads: 2,
          logSeverityLevel: 4,
          kvCache,
        });
        const first = await session.run(llmFeeds(someTokens(20)));
        const second = await session.run(llmFeeds(someTokens(30), first));
        expect(floats(second.logits).every(Number.isFinite)).toBe(true);
        const { reason } = session.report;
        for (const tensor of [...Object.values(first), ...Object.values(second)]) tensor.dispose();
        await session.release();
        expect(driver.alive()).toEqual(nothing);
        if (reason === undefined) break;
        failed++;
        expect(reason).toContain('out of memory');
      }
      expect(failed).toBeGreaterThan(0);
    },
  );

  it('makes do with less where memory is short', async () => {
    const expected = await attend();
    driver.fault('allocation:1');
    expect(sameBytes(await attend(), expected)).toBe(true);
  });

  it('goes on after a failure that concerns one call', async () => {
    const backend = hipBackend();
    const expected = await backend.attention(tensors, spec, precision('f32'));
    for (const fault of ['launch', 'copy', 'copy:2', 'launch:3']) {
      driver.fault(fault);
      await expect(backend.attention(tensors, spec, precision('f32'))).rejects.toThrow('HIP says');
      driver.fault('');
      expect(sameBytes(await backend.attention(tensors, spec, precision('f32')), expected)).toBe(true);
    }
    backend.release();
  });

  it('computes a session on the GPU', async () => {
    const { launches = 0 } = driver.counted();
    const session = await open('gpu');
    expect(session.report.device).toBe('Emulated GPU (gfx942, HIP)');
    const out = await logits(session);
    expect(session.report.reason).toBeUndefined();
    expect(driver.counted().launches).toBeGreaterThan(launches + 8);
    await session.release();
    const expected = await onCpu();
    const far = out.reduce((most, value, i) => Math.max(most, Math.abs(value - expected[i]!)), 0);
    expect(far).toBeLessThan(0.5);
  });

  it('refuses a device that it does not know', async () => {
    expect(await message(() => open('tpu' as SessionDevice))).toBe(
      'unknown device "tpu"; there are "cpu", "gpu", "auto" and { gpu: index }',
    );
    expect(await message(() => open({ gpu: 7 }))).toBe('there is no GPU 7; the last is GPU 0');
  });

  describe('compiled kernels', () => {
    const files = () =>
      readdirSync(join(driver.cache, 'mxattn')).map((name) => join(driver.cache, 'mxattn', name));

    it('are kept on disk, by architecture and compiler', async () => {
      const before = driver.counted().compilations ?? 0;
      const compilations = () => driver.counted().compilations! - before;
      await attend();
      const first = compilations();
      expect(first).toBeGreaterThan(0);
      await attend();
      expect(compilations()).toBe(first);
      driver.gpus('gfx1100');
      await attend();
      expect(compilations()).toBe(2 * first);
      process.env.MXATTN_FAKE_HIP_COMPILER = '7';
      await attend();
      delete process.env.MXATTN_FAKE_HIP_COMPILER;
      expect(compilations()).toBe(3 * first);
      expect(files()).toHaveLength(3 * first);
    });

    it('are compiled anew where the file is damaged', async () => {
      const expected = await attend();
      const [file] = files() as [string];
      const whole = readFileSync(file);
      for (const damage of [
        () => truncateSync(file, whole.length - 1),
        () => truncateSync(file, 0),
        () =>
          writeFileSync(
            file,
            whole.map((byte, i) => (i === whole.length - 2 ? byte ^ 1 : byte)),
          ),
        () => writeFileSync(file, 'something else\n'),
        () => rmSync(file),
      ]) {
        damage();
        expect(sameBytes(await attend(), expected)).toBe(true);
        expect(readFileSync(file)).toEqual(whole);
      }
    });

    it('do without a place on disk', async () => {
      const expected = await attend();
      process.env.XDG_CACHE_HOME = '/dev/null/nowhere';
      expect(sameBytes(await attend(), expected)).toBe(true);
    });
  });
});
