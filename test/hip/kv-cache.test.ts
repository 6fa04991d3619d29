import { createSession, kvCacheBytes, type MxattnSession } from '@mxattn/ort-op';
import type { InferenceSession, Tensor } from 'onnxruntime-node';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { relativeError, sameBytes } from '../conformance/random.js';
import { downloaded, floats, LLM, llmFeeds, someTokens } from '../session/support.js';
import { buildFakeDriver, FakeDriver, nothing } from './fake.js';

type Outputs = InferenceSession.OnnxValueMapType;

const built = buildFakeDriver();
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

  it.each(['f32', 'mxfp6', 'mxfp4'] as const)('gives what tensors give: %s', async (precision) => {
    const tensors = await open({ precision, device: 'gpu', kvCache: 'tensors' });
    const native = await open({ precision, device: 'gpu' });
    expect(native.report.kvCache).toBe('native');
    let [a, b] = [await run(tensors, someTokens(30)), await run(native, someTokens(30))];
    for (const ids of [[7], [1, 2, 3], [8], [9]]) {
      [a, b] = [await run(tensors, ids, a), await run(native, ids, b)];
      expect(sameBytes(floats(b.logits), floats(a.logits))).toBe(true);
    }
    for (const name of ['present.0.key', 'present.7.value']) {
      expect(sameBytes(await downloaded(b[name]), await downloaded(a[name]))).toBe(true);
    }
  });

  it('used twice, or taken up behind its end, goes two ways', async () => {
    const tensors = await open({ device: 'gpu', kvCache: 'tensors' });
    const native = await open({ device: 'gpu' });
    const [a, b] = [await run(tensors, someTokens(40)), await run(native, someTokens(40))];
    await run(native, [1, 2, 3], await run(native, [5], b));
    for (const token of [9, 11]) {
      const expected = floats((await run(tensors, [token], a)).logits);
      expect(sameBytes(floats((await run(native, [token], b)).logits), expected)).toBe(true);
    }
    const together = await Promise.all([9, 11].map((token) => run(native, [token], b)));
    for (const [i, token] of [9, 11].entries()) {
      const expected = floats((await run(tensors, [token], a)).logits);
      expect(sameBytes(floats(together[i]!.logits), expected)).toBe(true);
    }
  });

  it('takes in a cache of tensors', async () => {
    const tensors = await open({ device: 'gpu', kvCache: 'tensors' });
    const native = await open({ device: 'gpu' });
    const before = await run(tensors, someTokens(40));
    const expected = floats((await run(tensors, [3], before)).logits);
    expect(sameBytes(floats((await run(native, [3], before)).logits), expected)).toBe(true);
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
    expect(kvCacheBytes(cache['present.0.key'] as Tensor)).toBeGreaterThanOrEqual(8 * 2 * 76 * 2 * 64 * 4);
    dispose();
    // What is left is the call's memory.
    expect(driver.alive().memory! - before).toBeLessThanOrEqual(2);
  });

  it.each(['allocation', 'launch', 'copy-rows', 'copy'])(
    'moves to the processor where the GPU fails and goes on there: %s',
    async (fault) => {
      const onGpu = await open({ precision: 'f32', device: 'gpu' });
      const native = await open({ precision: 'f32', device: 'auto' });
      let [a, b] = [await run(onGpu, someTokens(40)), await run(native, someTokens(40))];
      [a, b] = [await run(onGpu, [1], a), await run(native, [1], b)];
      // Allocations come again when a cache or the memory of a call has to grow.
      const more = fault === 'allocation' ? someTokens(500) : [2, 3];
      a = await run(onGpu, more, a);
      driver.fault(fault === 'copy' ? 'copy:1' : fault);
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
