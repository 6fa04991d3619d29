import { readFileSync } from 'node:fs';
import { MxattnError } from '@mxattn/core';
import { convertModel, createSession, isaLevels, type MxattnSession, writeModel } from '@mxattn/ort-op';
import { Tensor } from 'onnxruntime-node';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { relativeError } from '../conformance/random.js';
import { onnx } from '../graph/onnx-text.js';
import {
  DIFFUSION,
  diffusionFeeds,
  downloaded,
  floats,
  LLM,
  llmFeeds,
  someTokens,
  stockSession,
} from './support.js';

const native = { backend: 'native', threads: 2 } as const;

describe('a session of the language model', () => {
  it('has the interface of the stock session', async () => {
    const stock = await stockSession(LLM);
    const session = await createSession(LLM, native);
    expect(session.inputNames).toEqual(stock.inputNames);
    expect(session.outputNames).toEqual(stock.outputNames);
    expect(session.inputMetadata).toEqual(stock.inputMetadata);
    expect(session.outputMetadata).toEqual(stock.outputMetadata);
    await session.release();
    await stock.release();
  });

  it('replaces 8 of 8 attentions', async () => {
    const { report } = await createSession(LLM, native);
    expect(report.backend).toBe('native');
    expect(report.replaced).toHaveLength(8);
    expect(report.left).toEqual([]);
  });

  it.each(isaLevels())('at f32 gives the logits and caches of stock: %s', async (isa) => {
    const stock = await stockSession(LLM);
    const session = await createSession(LLM, { ...native, isa });
    expect(session.report.isa).toBe(isa);
    const ids = someTokens(200);
    let expected = await stock.run(llmFeeds(ids));
    let actual = await session.run(llmFeeds(ids));
    for (let step = 0; step < 3; step++) {
      for (const name of stock.outputNames) {
        expect((actual[name] as Tensor).dims).toEqual((expected[name] as Tensor).dims);
        expect(relativeError(await downloaded(actual[name]), floats(expected[name]))).toBeLessThan(1e-4);
      }
      expected = await stock.run(llmFeeds([step + 5], expected));
      actual = await session.run(llmFeeds([step + 5], actual));
    }
  });

  it('takes a precision by layer and phase', async () => {
    const ids = someTokens(64);
    const exact = await createSession(LLM, { ...native, kvCache: 'tensors' });
    const prefillOnly = await createSession(LLM, {
      ...native,
      schedule: { default: 'f32', rules: [{ phase: 'prefill', precision: 'mxfp4' }] },
    });
    const cache = await exact.run(llmFeeds(ids));
    const quantised = await prefillOnly.run(llmFeeds(ids));
    expect(relativeError(floats(quantised.logits), floats(cache.logits))).toBeGreaterThan(0.01);
    const decoded = await prefillOnly.run(llmFeeds([7], cache));
    const expected = await exact.run(llmFeeds([7], cache));
    expect(floats(decoded.logits)).toEqual(floats(expected.logits));

    const layers = await createSession(LLM, {
      ...native,
      kvCache: 'tensors',
      schedule: { default: 'f32', rules: [{ layers: [-1, -1], precision: 'mxfp4' }] },
    });
    const last = await layers.run(llmFeeds(ids));
    // The caches of all layers come before the last attention; the logits after it.
    expect(await downloaded(last['present.7.value'])).toEqual(await downloaded(cache['present.7.value']));
    expect(relativeError(floats(last.logits), floats(cache.logits))).toBeGreaterThan(1e-3);
  });
});

describe('decoding', () => {
  it('needs no more memory with every step', async () => {
    const session = await createSession(LLM, native);
    const cache = await session.run(llmFeeds(someTokens(256)));
    const decode = async (steps: number) => {
      for (let step = 0; step < steps; step++) await session.run(llmFeeds([step], cache));
      globalThis.gc?.();
      return process.memoryUsage().rss;
    };
    const before = await decode(60);
    // The caches of one step take 2 MB: kept, they would be 400 MB.
    expect((await decode(200)) - before).toBeLessThan(100e6);
    await session.release();
  });
});

describe('what a session cannot do', () => {
  it('is announced once, and runs in a stock session', async () => {
    const warnings: string[] = [];
    const listen = ({ name, message }: Error) => {
      if (name === 'MxattnWarning') warnings.push(message);
    };
    process.on('warning', listen);
    const model = onnx({
      nodes: 'y = Attention(q, q, q)',
      inputs: { q: 'f32[1,2,3,4]' },
      outputs: { y: 'f32[1,2,3,4]' },
      opset: 23,
    });
    for (let time = 0; time < 2; time++) {
      const session = await createSession(model, { preferredOutputLocation: 'cpu-pinned' });
      expect(session.report.backend).toBe('stock');
    }
    await new Promise(setImmediate);
    process.off('warning', listen);
    expect(warnings).toEqual([expect.stringContaining('only cpu is supported')]);
  });
});

describe('a session of the diffusion model', () => {
  let session: MxattnSession;
  const schedule = '3:f32/14:mxfp4/3:mxfp6';

  beforeAll(async () => {
    session = await createSession(DIFFUSION, { ...native, schedule });
  });
  afterAll(() => session.release());

  it('replaces 8 self-attentions and leaves 8 cross-attentions', () => {
    expect(session.report.replaced).toHaveLength(8);
    expect(session.report.left).toHaveLength(8);
    for (const { reason } of session.report.left) expect(reason).toContain('cross-attention');
  });

  it('runs each step at its precision', async () => {
    const stock = await stockSession(DIFFUSION);
    const expected = floats((await stock.run(diffusionFeeds())).velocity);
    const error = async (step: number) =>
      relativeError(floats((await session.run(diffusionFeeds(), { step })).velocity), expected);
    const [exact, four, six] = [await error(2), await error(3), await error(19)];
    expect(exact).toBeLessThan(1e-4);
    expect(six).toBeGreaterThan(1e-3);
    expect(four).toBeGreaterThan(1.5 * six);
  });

  it('keeps runs of different steps apart when they overlap', async () => {
    const alone: Float32Array[] = [];
    const steps = [0, 5, 19, 5, 0, 19];
    for (const step of steps)
      alone.push(floats((await session.run(diffusionFeeds(step), { step })).velocity));
    const together = await Promise.all(steps.map((step) => session.run(diffusionFeeds(step), { step })));
    together.forEach(({ velocity }, i) => {
      expect(Buffer.from(floats(velocity).buffer).equals(Buffer.from(alone[i]!.buffer))).toBe(true);
    });
  });

  it('asks for the step', async () => {
    await expect(session.run(diffusionFeeds())).rejects.toThrow(
      /depends on the step: pass run\(feeds, \{ step \}\)/,
    );
  });

  it('fetches by name, and into tensors', async () => {
    const named = await session.run(diffusionFeeds(), ['velocity'], { step: 0 });
    expect(Object.keys(named)).toEqual(['velocity']);
    const target = new Tensor('float32', new Float32Array(2 * 3 * 64 * 64), [2, 3, 64, 64]);
    const into = await session.run(diffusionFeeds(), { velocity: target }, { step: 0 });
    expect(into.velocity).toBe(target);
    expect(floats(target)).toEqual(floats(named.velocity));
    await expect(session.run(diffusionFeeds(), ['speed'], { step: 0 })).rejects.toThrow(
      'the model has no output "speed"; its outputs are velocity',
    );
  });
});

describe('a converted model', () => {
  it('saved to a file is recognised, and runs as from the original', async () => {
    const bytes = writeModel(convertModel(DIFFUSION).model);
    const session = await createSession(bytes, { ...native, precision: 'mxfp6' });
    expect(session.report.replaced).toHaveLength(8);
    expect(session.inputNames).not.toContain('mxattn.precision');
    const original = await createSession(DIFFUSION, { ...native, precision: 'mxfp6' });
    const [a, b] = [await session.run(diffusionFeeds()), await original.run(diffusionFeeds())];
    expect(floats(a.velocity)).toEqual(floats(b.velocity));
  });

  it('gives the same answers in stock onnxruntime-node', async () => {
    const stock = await stockSession(DIFFUSION);
    const converted = await stockSession(writeModel(convertModel(DIFFUSION).model));
    const [a, b] = [await converted.run(diffusionFeeds()), await stock.run(diffusionFeeds())];
    expect(relativeError(floats(a.velocity), floats(b.velocity))).toBeLessThan(1e-4);
  });
});

describe('a model without attention', () => {
  it('runs as before', async () => {
    const model = onnx({ nodes: 'y = Mul(x, 2.0)', inputs: { x: 'f32[3]' }, outputs: { y: 'f32[3]' } });
    const session = await createSession(model, { precision: 'mxfp4' });
    expect(session.report).toMatchObject({
      backend: 'stock',
      reason: 'no attention to replace',
      replaced: [],
    });
    const { y } = await session.run({ x: new Tensor('float32', Float32Array.of(1, 2, 3), [3]) }, { step: 3 });
    expect(floats(y)).toEqual(Float32Array.of(2, 4, 6));
  });
});

describe('bad input', () => {
  let session: MxattnSession;
  beforeAll(async () => {
    // ONNX Runtime also prints the errors that its kernels return.
    session = await createSession(DIFFUSION, { ...native, logSeverityLevel: 4 });
  });
  // The process lives on: the same session still gives the right answer at the end.
  afterAll(async () => {
    const { velocity } = await session.run(diffusionFeeds());
    const stock = await stockSession(DIFFUSION);
    expect(
      relativeError(floats(velocity), floats((await stock.run(diffusionFeeds())).velocity)),
    ).toBeLessThan(1e-4);
  });

  const bytes = readFileSync(DIFFUSION);

  it.each([
    [
      'a truncated model',
      () => createSession(bytes.subarray(0, 10_000_000)),
      /is not an ONNX model: .*truncated/,
    ],
    ['text', () => createSession(new TextEncoder().encode('{"not": "onnx"}')), /is not an ONNX model/],
    ['nothing', () => createSession(new Uint8Array(0)), /is not an ONNX model: the file is empty/],
    ['a missing file', () => createSession('nowhere/model.onnx'), /nowhere\/model\.onnx: no such file/],
    [
      'an unknown precision',
      () => createSession(DIFFUSION, { precision: 'fp3' as 'f32' }),
      /unknown precision "fp3"; known: f32/,
    ],
    [
      'a bad schedule',
      () => createSession(DIFFUSION, { schedule: '3:mxfp6/x' }),
      /"x" is no segment such as 3:mxfp6/,
    ],
    [
      'precision and schedule',
      () => createSession(DIFFUSION, { precision: 'f32', schedule: 'f32' }),
      /not both/,
    ],
    [
      'a precision the kernel lacks',
      () => createSession(DIFFUSION, { precision: 'efq4' }),
      /do not have precision efq4; they have f32, mxfp6, mxfp4, mxfp8/,
    ],
    [
      'an unknown backend',
      () => createSession(DIFFUSION, { backend: 'cuda' as 'native' }),
      /unknown backend "cuda"; there are auto, native, stock/,
    ],
    [
      'an unknown build',
      () => createSession(DIFFUSION, { isa: 'sse9' }),
      /option isa is "sse9"; this processor can run .*portable/,
    ],
    [
      'a provider',
      () => createSession(DIFFUSION, { ...native, executionProviders: ['cuda'] }),
      /executionProviders has "cuda"/,
    ],
  ])('%s', async (_, create, message) => {
    const error: unknown = await create().then(
      () => undefined,
      (reason) => reason,
    );
    expect(error).toBeInstanceOf(MxattnError);
    expect((error as MxattnError).message).toMatch(message);
  });

  const run = (change: Record<string, Tensor | undefined>) => {
    const feeds = Object.entries({ ...diffusionFeeds(), ...change }).filter(([, tensor]) => tensor);
    return session.run(Object.fromEntries(feeds) as Record<string, Tensor>);
  };
  it.each([
    ['a missing input', { timestep: undefined }, 'input "timestep" is missing; it is float32 [batch]'],
    [
      'an unknown input',
      { time: diffusionFeeds().timestep },
      'the model has no input "time"; its inputs are sample, timestep, text_ids',
    ],
    [
      'a wrong type',
      { timestep: new Tensor('float64', Float64Array.of(1, 1), [2]) },
      'input "timestep" is float64 [2], but the model takes float32 [batch]',
    ],
    [
      'a wrong size',
      { sample: new Tensor('float32', new Float32Array(96), [2, 3, 4, 4]) },
      'input "sample" is float32 [2, 3, 4, 4], but the model takes float32 [batch, 3, 64, 64]',
    ],
    [
      'a wrong number of axes',
      { timestep: new Tensor('float32', Float32Array.of(1, 1), [2, 1]) },
      'input "timestep" is float32 [2, 1], but the model takes float32 [batch]',
    ],
    [
      'strings',
      { text_ids: new Tensor('string', new Array<string>(16).fill('a'), [2, 8]) },
      'input "text_ids" is string [2, 8]; this type is not supported',
    ],
  ])('%s', async (_, change, message) => {
    await expect(run(change)).rejects.toThrow(new MxattnError(message));
  });

  it('sizes that do not fit each other: the error of ONNX Runtime', async () => {
    await expect(run({ timestep: new Tensor('float32', Float32Array.of(1, 1, 1), [3]) })).rejects.toThrow();
  });

  it('a run after release', async () => {
    const released = await createSession(DIFFUSION, native);
    await released.release();
    await expect(released.run(diffusionFeeds())).rejects.toThrow('this session was released');
  });

  it('release during a run lets the run finish', async () => {
    const released = await createSession(DIFFUSION, native);
    const running = released.run(diffusionFeeds());
    await released.release();
    expect(floats((await running).velocity).every(Number.isFinite)).toBe(true);
  });
});
