import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { createSession, customOpLibrary } from '@mxattn/ort-op';
import type { InferenceSession } from 'onnxruntime-node';
import { afterAll, describe, expect, it } from 'vitest';
import { relativeError } from '../conformance/random.js';
import { buildFakeDriver } from '../hip/fake.js';
import { floats, LLM, llmFeeds, someTokens } from '../session/support.js';

// MXATTN_PYTHON names a Python that has onnxruntime and, for Triton's configuration, tritonclient[grpc].
const python = process.env.MXATTN_PYTHON ?? 'python3';
const examples = fileURLToPath(new URL('../../examples/serving/', import.meta.url));
const main = fileURLToPath(new URL('../../packages/transformers-patch/dist/cli/main.js', import.meta.url));

function lacks(module: string): boolean {
  const missing = spawnSync(python, ['-c', `import ${module}`]).status !== 0;
  if (missing)
    console.warn(`SKIPPED: no serving from Python: ${python} cannot import ${module} (MXATTN_PYTHON)`);
  return missing;
}

function run(script: string, args: readonly string[], env: Record<string, string> = {}) {
  const path = fileURLToPath(new URL(script, import.meta.url));
  const { status, stdout, stderr } = spawnSync(python, [path, ...args], {
    env: { ...process.env, PYTHONPATH: examples, PYTHONDONTWRITEBYTECODE: '1', ...env },
    maxBuffer: 2 ** 28,
  });
  return { status, stdout, stderr: stderr.toString() };
}

function result(script: string, args: readonly string[], env?: Record<string, string>): Buffer {
  const { status, stdout, stderr } = run(script, args, env);
  expect(status, stderr).toBe(0);
  return stdout;
}

const fake = await buildFakeDriver();
if ('missing' in fake) console.warn(`skipped: ${fake.missing}`);

describe.skipIf(lacks('onnxruntime'))('the operator as a library, in Python', () => {
  const folder = mkdtempSync(join(tmpdir(), 'mxattn-serving-'));
  afterAll(() => rmSync(folder, { recursive: true }));

  function converted(precision: string): string {
    const path = join(folder, `${precision}.onnx`);
    const { status, stderr } = spawnSync(process.execPath, [
      main,
      'convert',
      LLM,
      path,
      '--precision',
      precision,
    ]);
    expect(status, stderr.toString()).toBe(0);
    return path;
  }
  const model = converted('mxfp4');
  const prompt = someTokens(70);
  const more = [5, 6, 7];

  const tokens = (ids: readonly number[]) => ids.join(',');
  const logits = (precision: string, env: Record<string, string> = {}) => {
    const bytes = result(
      './logits.py',
      [customOpLibrary(), model, precision, tokens(prompt), tokens(more)],
      env,
    );
    return new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength));
  };
  const inNode = async (precision: 'f32' | 'mxfp6' | 'mxfp4') => {
    const session = await createSession(model, {
      backend: 'native',
      threads: 2,
      precision,
      kvCache: 'tensors',
    });
    const parts: Float32Array[] = [];
    let cache: InferenceSession.OnnxValueMapType | undefined;
    for (const ids of [prompt, ...more.map((each) => [each])]) {
      cache = await session.run(llmFeeds(ids, cache));
      parts.push(floats(cache.logits));
    }
    return Float32Array.from(parts.flatMap((part) => [...part]));
  };

  // The two copies of ONNX Runtime are of different versions, and a last bit may decide a code.
  it.each([
    ['0', 'f32', 1e-5],
    ['1', 'mxfp6', 0.02],
    ['', 'mxfp4', 0.02],
  ] as const)(
    'gives the logits of a session in Node.js, precision fed: "%s"',
    async (fed, precision, error) => {
      expect(relativeError(logits(fed), await inNode(precision))).toBeLessThan(error);
    },
  );

  it('says which builds there are when asked for another', () => {
    const { status, stderr } = run('./logits.py', [customOpLibrary(), model, '', '1', '2'], {
      MXATTN_ISA: 'z80',
    });
    expect(status).not.toBe(0);
    expect(stderr).toMatch(/no kernel build "z80" for this processor; it can run .*portable/);
  });

  it.each([
    ['tpu', 'MXATTN_DEVICE is "tpu"; it may be cpu, gpu, or gpu:1 and so on'],
    ['gpu:1x', 'MXATTN_DEVICE is "gpu:1x"; it may be cpu'],
    ['gpu', 'there is no GPU to use. HIP: none of /nowhere'],
  ])('says what is wrong with the device %s', (device, message) => {
    const { status, stderr } = run('./logits.py', [customOpLibrary(), model, '', '1', '2'], {
      MXATTN_DEVICE: device,
      MXATTN_HIP: '/nowhere/libamdhip64.so',
      MXATTN_GPU_DRIVER: 'hip',
    });
    expect(status).not.toBe(0);
    expect(stderr).toContain(message);
  });

  it.skipIf('missing' in fake)('computes on a GPU', async () => {
    const error = relativeError(
      logits('', {
        MXATTN_DEVICE: 'gpu',
        MXATTN_HIP: 'folder' in fake ? fake.folder : '',
        MXATTN_GPU_DRIVER: 'hip',
        XDG_CACHE_HOME: folder,
      }),
      await inNode('mxfp4'),
    );
    expect(error).toBeLessThan(0.05);
  });

  it('says what is wrong with a precision', () => {
    const { status, stderr } = run('./logits.py', [customOpLibrary(), model, '9', '1', '2']);
    expect(status).not.toBe(0);
    expect(stderr).toMatch(
      /layer 0: precision id 9 is not one of the kernels': f32 0, mxfp6 1, mxfp4 2, mxfp8 3/,
    );
  });

  it('answers from the replica that Ray Serve deploys', () => {
    const answer = result('./ray_replica.py', [tokens(prompt)], {
      MXATTN_LIBRARY: customOpLibrary(),
      MXATTN_MODEL: model,
    });
    const direct = spawnSync(python, [
      join(examples, 'story_model.py'),
      customOpLibrary(),
      model,
      '5',
      ...prompt.map(String),
    ]);
    expect(JSON.parse(answer.toString())).toEqual({
      ids: direct.stdout.toString().trim().split(' ').map(Number),
    });
  });

  it.skipIf(lacks('tritonclient.grpc'))(
    'has a configuration for Triton that fits the schema and the model',
    () => {
      result('./triton_config.py', [
        join(examples, 'triton/story_llama/config.pbtxt'),
        customOpLibrary(),
        model,
      ]);
    },
  );
});
