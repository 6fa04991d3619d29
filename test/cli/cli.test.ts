import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { createSession, readModel, writeModel } from '@mxattn/ort-op';
import type { Tensor } from 'onnxruntime-node';
import { afterAll, describe, expect, it } from 'vitest';
import { onnx } from '../graph/onnx-text.js';
import { relativeError, runStock } from '../graph/stock.js';
import { zooFeeds, zooModel } from '../graph/zoo.js';
import { LLM, llmFeeds, someTokens } from '../session/support.js';
import { safetensors } from './safetensors.js';

const main = fileURLToPath(new URL('../../packages/transformers-patch/dist/cli/main.js', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'mxattn-cli-'));
afterAll(() => rmSync(folder, { recursive: true }));

function mxattn(...args: string[]) {
  const { stdout, stderr, status } = spawnSync(process.execPath, [main, ...args], {
    encoding: 'utf8',
    cwd: folder,
  });
  return { stdout, stderr, status };
}

/** What a command prints with --json. */
function json<T = Record<string, unknown>>(...args: string[]): T {
  const { stdout, stderr, status } = mxattn(...args, '--json');
  expect({ stderr, status }).toEqual({ stderr: '', status: 0 });
  return JSON.parse(stdout) as T;
}

/** Writes a file and returns its path. */
function file(name: string, content: string | Uint8Array): string {
  const path = join(folder, name);
  writeFileSync(path, content);
  return path;
}

const llama = file('llama.onnx', writeModel(zooModel('llama.sdpa.ts17')));
const bart = file('bart.onnx', writeModel(zooModel('bart.sdpa.ts17')));
const noAttention = file(
  'plain.onnx',
  onnx({ nodes: 'y = Relu(x)', inputs: { x: 'f32[2]' }, outputs: { y: 'f32[2]' } }),
);

interface Report {
  readonly replaced: { layer: number; heads: number; kvHeads: number; selfAttention: boolean }[];
  readonly left: { node: string; reason: string }[];
}

interface Comparison {
  readonly differs: boolean;
  readonly tolerance: number;
  readonly attention: { name: string; relativeError: number; cosine: number; largest: number }[];
  readonly outputs: Comparison['attention'];
}

describe('mxattn inspect', () => {
  it('lists what is replaced', () => {
    const { replaced, left } = json<Report>('inspect', llama);
    expect(replaced).toHaveLength(2);
    expect(replaced[0]).toMatchObject({ layer: 0, heads: 4, kvHeads: 2, headSize: 32, selfAttention: true });
    expect(left).toEqual([]);
  });

  it('gives the reason for what is not', () => {
    const { replaced, left } = json<Report>('inspect', bart);
    expect(replaced).toHaveLength(4);
    expect(left.map(({ reason }) => reason)).toEqual([
      expect.stringMatching(/cross-attention/),
      expect.stringMatching(/cross-attention/),
    ]);
    expect(json<Report>('inspect', bart, '--cross-attention').replaced).toHaveLength(6);
  });

  it('prints tables without escape codes into a pipe', () => {
    const { stdout, status } = mxattn('inspect', bart);
    expect(status).toBe(0);
    expect(stdout).toContain('│ layer │ heads │ KV heads │');
    expect(stdout).toContain('4 can be replaced, 2 left alone');
    expect(stdout).not.toContain('\x1b');
  });
});

describe('mxattn convert', () => {
  it.each(['fused', 'contrib'])(
    'writes a model for target %s that stock ONNX Runtime runs',
    async (target) => {
      const out = join(folder, `${target}.onnx`);
      expect(json<Report>('convert', llama, out, '--target', target).replaced).toHaveLength(2);
      const feeds = zooFeeds('llama.sdpa.ts17');
      const [expected, actual] = [await runStock(llama, feeds), await runStock(out, feeds)];
      for (const [name, tensor] of Object.entries(expected)) {
        expect(relativeError(actual[name] as Tensor, tensor as Tensor)).toBeLessThan(1e-4);
      }
    },
  );

  it('prints a table', () => {
    const { stdout, status } = mxattn('convert', llama, join(folder, 'table.onnx'));
    expect(status).toBe(0);
    expect(stdout).toContain('2 can be replaced, 0 left alone');
  });

  it('stores a precision that sessions use unless they are given another', async () => {
    const out = join(folder, 'mxfp4.onnx');
    json('convert', llama, out, '--precision', 'mxfp4');
    const feeds = zooFeeds('llama.sdpa.ts17');
    const run = async (model: string, options: Parameters<typeof createSession>[1] = {}) => {
      const session = await createSession(model, { backend: 'native', threads: 2, ...options });
      const { output } = (await session.run(feeds)) as Record<string, Tensor>;
      await session.release();
      return output!;
    };
    const [stored, told] = [await run(out), await run(llama, { precision: 'mxfp4' })];
    expect(stored.data).toEqual(told.data);
    expect((await run(out, { precision: 'f32' })).data).toEqual((await run(llama)).data);
    expect(relativeError(stored, await run(llama))).toBeGreaterThan(1e-3);
  });

  it('stores a precision for each layer', () => {
    const out = join(folder, 'layers.onnx');
    const schedule = '{"default":"mxfp6","rules":[{"layers":[-1,-1],"precision":"f32"}]}';
    json('convert', llama, out, '--schedule', schedule);
    const stored = readModel(out).graph?.initializer.find(({ name }) => name === 'mxattn.precision');
    expect([...new Int32Array(Uint8Array.from(stored!.rawData).buffer)]).toEqual([1, 0]);
  });

  it.each([
    ['3:mxfp6/14:mxfp4/3:mxfp6', /depends on the step; give it to the session/],
    ['{"default":"f32","rules":[{"phase":"decode","precision":"mxfp4"}]}', /depends on the phase; give it/],
  ])('refuses the schedule %s', (schedule, reason) => {
    const { stderr, status } = mxattn('convert', llama, join(folder, 'no.onnx'), '--schedule', schedule);
    expect(status).toBe(2);
    expect(stderr).toMatch(reason);
  });

  it('refuses to leave weights behind', () => {
    const model = zooModel('llama.sdpa.ts17');
    const weight = model.graph!.initializer.find(({ rawData }) => rawData.byteLength > 1024)!;
    const data = weight.rawData;
    weight.rawData = new Uint8Array();
    weight.dataLocation = 1;
    weight.externalData = [{ $typeName: 'onnx.StringStringEntryProto', key: 'location', value: 'w.bin' }];
    const source = file('external.onnx', writeModel(model));
    file('w.bin', data);
    const other = join(folder, 'other');
    mkdirSync(other);
    const { stderr, status } = mxattn('convert', source, join(other, 'out.onnx'));
    expect(status).toBe(2);
    expect(stderr).toBe(
      `mxattn: the weights of ${source} lie beside it in w.bin: write the converted model into ${folder}, ` +
        `or copy that file to ${other} first\n`,
    );
    expect(mxattn('convert', source, join(folder, 'beside.onnx')).status).toBe(0);
    writeFileSync(join(other, 'w.bin'), data);
    expect(mxattn('convert', source, join(other, 'out.onnx')).status).toBe(0);
  });
});

describe('mxattn compare', () => {
  it('compares outputs and layers on inputs from a file', () => {
    const feeds = llmFeeds(someTokens(24));
    // As files of inputs with recorded outputs have it: `input.` before the names of inputs.
    const inputs = file('batch.safetensors', safetensors(feeds, 'input.'));
    const result = json<Comparison>('compare', LLM, '--inputs', inputs);
    expect(result.differs).toBe(false);
    expect(result.attention).toHaveLength(8);
    expect(result.outputs.map(({ name }) => name)).toContain('logits');
    for (const each of [...result.attention, ...result.outputs]) {
      expect(each.relativeError).toBeLessThan(1e-5);
      expect(each.cosine).toBeGreaterThan(0.99999);
    }
    const { attention } = json<Comparison>('compare', LLM, '--inputs', inputs, '--precision', 'mxfp4');
    for (const each of attention) {
      expect(each.relativeError).toBeGreaterThan(0.01);
      expect(each.relativeError).toBeLessThan(0.5);
    }
  });

  it('exits with 1 where an output differs', () => {
    const { stdout, status } = mxattn('compare', llama, '--precision', 'mxfp4', '--tolerance', '1e-6');
    expect(status).toBe(1);
    expect(stdout).toContain('differs: an output is off by more than 0.000001');
    expect(mxattn('compare', llama).stdout).toContain('within 0.0001');
  });
});

describe('mxattn calibrate', () => {
  it('finds thresholds for a model and writes them', () => {
    const out = join(folder, 'efq.json');
    const printed = json('calibrate', llama, '--length', '16', '--rows', '4', '--out', out);
    expect(printed).toMatchObject({ tau: expect.any(Number), step: expect.any(Number) });
    expect(JSON.parse(readFileSync(out, 'utf8'))).toEqual(printed);
  });

  it('prints a table for synthetic scores', () => {
    const { stdout, status } = mxattn('calibrate', '--length', '64', '--rows', '4');
    expect(status).toBe(0);
    expect(stdout).toContain('EFQ-Softmax');
  });
});

describe('mxattn doctor', () => {
  it('says what works', () => {
    // Drivers of GPUs write to the error output what they like.
    const findings = JSON.parse(mxattn('doctor', '--json').stdout) as Record<
      'what' | 'works' | 'found' | 'remedy',
      string | boolean
    >[];
    const finding = (name: string) => findings.find(({ what }) => what === name)!;
    const gpus = [
      finding('GPU kernels (HIP, CUDA)'),
      finding('WebGPU'),
      finding('In place in onnxruntime-web'),
    ];
    const others = findings.filter((each) => !gpus.includes(each));
    expect(others.map(({ what, works }) => [what, works])).toEqual([
      ['Node.js', true],
      ['onnxruntime-node', true],
      ['CPU kernel', true],
      ['@huggingface/transformers', true],
    ]);
    // Machines differ in this.
    const [native, webGpu, inPlace] = gpus;
    expect(native!.found).toMatch(native!.works ? /GPU 0: .*; compiled by (hiprtc|nvrtc) / : /HIP: |GPU 0: /);
    expect(webGpu!.found).toMatch(
      webGpu!.works ? /f32: .*; mxfp6: .*; matrix units: / : /WebGPU|webgpu|adapter/,
    );
    expect(inPlace!.found).toMatch(/^onnxruntime-web 1\.|not tried, without a GPU/);
    for (const gpu of gpus) expect(gpu.remedy === '').toBe(gpu.works);
    expect(mxattn('doctor').stdout).toContain('CPU kernel');
  });
});

describe('mxattn', () => {
  it('shows examples in the help of every command', () => {
    for (const command of ['inspect', 'convert', 'compare', 'calibrate', 'doctor']) {
      const { stdout, status } = mxattn(command, '--help');
      expect(status).toBe(0);
      expect(stdout).toContain(`Examples:\n  mxattn ${command}`);
    }
  });

  it('shows its commands where none is named', () => {
    const { stderr, status } = mxattn();
    expect(stderr).toMatch(/^Usage: mxattn .*mxattn: name a command; see mxattn --help\n$/s);
    expect(status).toBe(2);
  });

  const garbage = file('garbage.onnx', 'this is no model');
  const badHeader = file('bad.safetensors', '{"x": 1}');
  const other = file('other.safetensors', safetensors({}));
  it.each<[string, string[], RegExp]>([
    ['an unknown command', ['inspekt'], /unknown command 'inspekt'/],
    ['no model', ['inspect'], /missing required argument 'model'/],
    ['a missing file', ['inspect', 'none.onnx'], /cannot read the model none\.onnx: no such file/],
    ['a file of garbage', ['inspect', garbage], /garbage\.onnx is not an ONNX model/],
    [
      'an unknown target',
      ['convert', llama, 'x.onnx', '--target', 'gpu'],
      /no target is named gpu; there are/,
    ],
    ['an unknown precision', ['compare', llama, '--precision', 'fp3'], /unknown precision "fp3"; known: f32/],
    ['a precision the kernel lacks', ['compare', llama, '--precision', 'efq4'], /do not have precision efq4/],
    [
      'a precision and a schedule',
      ['convert', llama, 'x.onnx', '--precision', 'f32', '--schedule', 'f32'],
      /either --precision or --schedule/,
    ],
    [
      'a precision for a target without',
      ['convert', llama, 'x.onnx', '--target', 'contrib', '--precision', 'mxfp4'],
      /target contrib computes in f32 alone/,
    ],
    [
      'a precision for no attention',
      ['convert', noAttention, 'x.onnx', '--precision', 'mxfp4'],
      /plain\.onnx has no attention to replace/,
    ],
    ['a bad schedule', ['compare', llama, '--schedule', '3:mxfp6/x'], /"x" is no segment/],
    ['an output nowhere', ['convert', llama, 'none/x.onnx'], /cannot write none\/x\.onnx/],
    ['a bad number', ['compare', llama, '--length', '0'], /--length is "0", expected a whole number/],
    [
      'bad safetensors',
      ['compare', llama, '--inputs', badHeader],
      /bad\.safetensors is not a safetensors file/,
    ],
    ['safetensors without the inputs', ['compare', llama, '--inputs', other], /has no tensor "input_ids"/],
    ['a model without attention', ['compare', noAttention], /plain\.onnx has no attention to replace/],
  ])('exits with 2 and one line for %s', (_, args, message) => {
    const { stdout, stderr, status } = mxattn(...args);
    expect(stderr).toMatch(message);
    expect(stderr).toMatch(/^mxattn: [^\n]*\n$/);
    expect({ stdout, status }).toEqual({ stdout: '', status: 2 });
  });

  it('exits with 2 and one line for a model that does not run', () => {
    const model = zooModel('llama.sdpa.ts17');
    model.graph!.initializer.splice(0, 1);
    const { stderr, status } = mxattn('compare', file('broken.onnx', writeModel(model)));
    expect(stderr).toMatch(/^mxattn: .*broken\.onnx does not run: [^\n]*\n$/);
    expect(status).toBe(2);
  });
});
