import { createSession, kvCacheBytes, type MxattnSession } from '@mxattn/ort-op';
import type { InferenceSession, Tensor } from 'onnxruntime-node';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { relativeError, sameBytes } from '../conformance/random.js';
import { downloaded, floats, LLM, llmFeeds, someTokens } from '../session/support.js';
import { buildFakeDriver, FakeDriver, nothing } from './fake.js';

type Outputs = InferenceSession.OnnxValueMapType;

const built = await buildFakeDriver();
if ('missing' in built) console.warn(`skipped: ${built.missing}`);

describe.skipIf('missing' in built)('a key/value cache on the GPU', () => {
  let driver: FakeDriver;
  const caches: Outputs[] = [];
  const sessions: MxattnSession[] = [];

  beforeEach(() => {
    driver = new FakeDriver('folder' in built ? built.folder : '');
    driver.gpus('gfx942');
    driver.fault('');
  });
  afterEach(async () => {
    driver.fault('');
    dispose();
    for (const session of sessions.splice(0)) await session.release();
    expect(driver.alive()).toEqual(nothing);
  });

  function dispose(): void {
    for (const cache of caches.splice(0)) {
      for (const tensor of Object.values(cache)) (tensor as Tensor).dispose();
    }
  }

  async function open(options: Parameters<typeof createSession>[1]): Promise<MxattnSession> {
    const session = await createSession(LLM, {
      precision: 'mxfp6',
      threads: 2,
      logSeverityLevel: 4,
      ...options,
    });
    sessions.push(session);
    return session;
  }

  async function run(session: MxattnSession, ids: readonly number[], cache?: Outputs): Promise<Outputs> {
    const outputs = await session.run(llmFeeds(ids, cache));
    caches.push(outputs);
    return outputs;
  }

  it.each([
    ['f32', 1e-5, 1e-6],
    ['mxfp8', 0.02, 0.06],
    ['mxfp6', 0.02, 0.06],
    ['mxfp4', 0.05, 0.2],
  ] as const)('gives what tensors give: %s', async (precision, error, formatError) => {
    const tensors = await open({ precision, device: 'gpu', kvCache: 'tensors' });
    const native = await open({ precision, device: 'gpu' });
    expect(native.report.kvCache).toBe('native');
    let [a, b] = [await run(tensors, someTokens(30)), await run(native, someTokens(30))];
    // Over the border of a panel, and with queries enough for the other kernels.
    for (const ids of [[7], [1, 2, 3], [8], someTokens(9), [9]]) {
      [a, b] = [await run(tensors, ids, a), await run(native, ids, b)];
      expect(relativeError(floats(b.logits), floats(a.logits))).toBeLessThan(error);
    }
    for (const name of ['present.0.key', 'present.7.value']) {
      expect(relativeError(await downloaded(b[name]), await downloaded(a[name]))).toBeLessThan(formatError);
    }
  });

  it.each([
    ['f32', 0],
    ['mxfp4', 0.1],
  ] as const)('used twice, or taken up behind its end, goes two ways: %s', async (precision, error) => {
    const native = await open({ precision, device: 'gpu' });
    const cache = await run(native, someTokens(40));
    const expected = [];
    for (const token of [9, 11]) {
      const again = await run(native, [token], await run(native, someTokens(40)));
      expected.push(floats(again.logits));
    }
    const together = await Promise.all([9, 11].map((token) => run(native, [token], cache)));
    for (const i of [0, 1]) expect(sameBytes(floats(together[i]!.logits), expected[i]!)).toBe(true);
    // One of them has continued the cache itself, which goes on into the next panel.
    await run(native, someTokens(30), together[0]!);
    await run(native, someTokens(30), together[1]!);
    // The values of the panel that is continued are those of its codes.
    const far = floats((await run(native, [9], cache)).logits);
    expect(relativeError(far, expected[0]!)).toBeLessThanOrEqual(error);
  });

  it('takes in a cache of tensors', async () => {
    const tensors = await open({ device: 'gpu', kvCache: 'tensors' });
    const native = await open({ device: 'gpu' });
    const before = await run(tensors, someTokens(40));
    const expected = floats((await run(tensors, [3], before)).logits);
    expect(relativeError(floats((await run(native, [3], before)).logits), expected)).toBeLessThan(0.02);
  });

  it('allocates by doubling and gives all back', async () => {
    const native = await open({ device: 'gpu' });
    const before = driver.alive().memory!;
    let cache = await run(native, someTokens(64));
    const allocations = [driver.counted().allocations!];
    for (let step = 0; step < 12; step++) {
      cache = await run(native, [step], cache);
      allocations.push(driver.counted().allocations!);
    }
    // After the first steps there is room for a while.
    expect(new Set(allocations.slice(-8)).size).toBe(1);
    // 6.25 bits an element, twice as many panels as needed, and a panel of values in floats.
    const floatBytes = 8 * 2 * 76 * 2 * 64 * 4;
    const bytes = kvCacheBytes(cache['present.0.key'] as Tensor);
    expect(bytes).toBeGreaterThan((floatBytes * 6.25) / 32);
    expect(bytes).toBeLessThan((2 * floatBytes * 6.25) / 32 + 8 * 2 * 32 * 64 * 4);
    dispose();
    // What is left is the call's memory.
    expect(driver.alive().memory! - before).toBeLessThanOrEqual(3);
  });

  it.each(['allocation', 'launch:1', 'launch:3', 'copy:1', 'copy:2', 'copy:3'])(
    'moves to the processor where the GPU fails and goes on there: %s',
    async (fault) => {
      const onGpu = await open({ precision: 'f32', device: 'gpu' });
      const native = await open({ precision: 'f32', device: 'auto' });
      let [a, b] = [await run(onGpu, someTokens(40)), await run(native, someTokens(40))];
      [a, b] = [await run(onGpu, [1], a), await run(native, [1], b)];
      // Allocations come again when a cache or the memory of a call has to grow.
      const more = someTokens(fault === 'allocation' ? 500 : 40);
      a = await run(onGpu, more, a);
      driver.fault(fault);
      b = await run(native, more, b);
      driver.fault('');
      expect(native.report.device).toBe('cpu');
      expect(native.report.reason).toMatch(/^GPU 0 \(Emulated GPU\): .* failed: HIP says/);
      expect(relativeError(floats(b.logits), floats(a.logits))).toBeLessThan(1e-4);
      [a, b] = [await run(onGpu, [4], a), await run(native, [4], b)];
      expect(relativeError(floats(b.logits), floats(a.logits))).toBeLessThan(1e-4);
    },
  );

  it('is spoilt when the GPU is lost, and the next one is on the processor', async () => {
    const native = await open({ device: 'auto' });
    const cpu = await open({ device: 'cpu' });
    const cache = await run(native, someTokens(20));
    driver.fault('lost');
    await expect(native.run(llmFeeds([1], cache))).rejects.toThrow('the GPU is lost to this process');
    await expect(native.run(llmFeeds([1], cache))).rejects.toThrow('this key/value cache is spoilt');
    expect(native.report.device).toBe('cpu');
    const [a, b] = [await run(cpu, someTokens(20)), await run(native, someTokens(20))];
    expect(sameBytes(floats(b.logits), floats(a.logits))).toBe(true);
  });
});
