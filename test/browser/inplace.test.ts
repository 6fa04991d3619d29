import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { findChromium, type Page, withPage } from '@mxattn/browser';
import type * as ortOp from '@mxattn/ort-op/web';
import type * as transformersPatch from '@mxattn/transformers-patch/web';
import type * as Ort from 'onnxruntime-common';
import { describe, expect, it } from 'vitest';
import { relativeError } from '../conformance/random.js';
import { noise } from '../graph/noise.js';
import { writeFamilies } from '../patch/families.js';
import { MODELS } from '../session/support.js';
import { suitePage } from './suite-page.js';

const executable = findChromium();
if (!executable) console.warn('skipped: no Chromium found; MXATTN_CHROMIUM can name one');

/** What the page's modules are called there. */
interface Modules {
  ort: typeof Ort;
  ortOp: typeof ortOp;
  patching: typeof transformersPatch;
  transformers: typeof import('@huggingface/transformers');
}

describe.skipIf(!executable)('in Chromium on WebGPU', () => {
  const page = suitePage(executable!, () => site(writeFamilies()), openModels);

  it('a model runs in place, at f32 as the unchanged model', async () => {
    const pixels = Array.from(noise(3 * 32 * 32, 7));
    const results = await page().evaluate(
      async ({ pixels }) => {
        const { ort, ortOp } = globalThis as unknown as Modules;
        const bytes = new Uint8Array(await (await fetch('/models/vit/onnx/model.onnx')).arrayBuffer());
        const run = async (options: object) => {
          const session = await ortOp.createSession(bytes, { ort, ...options });
          const feeds = {
            pixel_values: new ort.Tensor('float32', Float32Array.from(pixels), [1, 3, 32, 32]),
          };
          const { logits } = await session.run(feeds);
          const counts = session instanceof ortOp.InplaceSession ? session.dispatches : undefined;
          return {
            logits: [...((await logits!.getData()) as Float32Array)],
            backend: session.report.backend,
            counts,
          };
        };
        return {
          stock: await run({ backend: 'stock' }),
          f32: await run({ backend: 'inplace' }),
          mxfp4: await run({ backend: 'auto', precision: 'mxfp4' }),
        };
      },
      { pixels },
    );
    const { stock, f32, mxfp4 } = results;
    const error = (each: number[]) => relativeError(Float32Array.from(each), Float32Array.from(stock.logits));
    expect([f32.backend, mxfp4.backend]).toEqual(['inplace', 'inplace']);
    expect([f32.counts, mxfp4.counts]).toEqual([
      { inPlace: 2, left: {} },
      { inPlace: 2, left: {} },
    ]);
    expect(error(f32.logits)).toBeLessThan(1e-4);
    expect(error(mxfp4.logits)).toBeGreaterThan(1e-3);
    expect(error(mxfp4.logits)).toBeLessThan(0.2);
  }, 240_000);

  it('transformers.js is patched', async () => {
    const result = await page().evaluate(async () => {
      const { patching, transformers } = globalThis as unknown as Modules;
      const { pipeline } = transformers;
      const extract = async () => {
        const run = await pipeline('feature-extraction', 'bert', { device: 'webgpu', dtype: 'fp32' });
        const text =
          'the old king and the green tree of the red moon by the sea and a good dog in the house with a cat on the road'.concat(
            ' and the sun and the moon and the fire and the water of the world'.repeat(3),
          );
        return [...((await run(text, { pooling: 'mean' })).data as Float32Array)];
      };
      const stock = await extract();
      patching.patch({ precision: 'f32' });
      const f32 = await extract();
      patching.patch({ precision: 'mxfp4' });
      const mxfp4 = await extract();
      patching.unpatch();
      return { stock, f32, mxfp4, again: await extract(), reports: patching.patchReport() };
    });
    const error = (each: number[]) => relativeError(Float32Array.from(each), Float32Array.from(result.stock));
    expect(result.reports.map(({ backend, replaced }) => [backend, replaced.length])).toEqual([
      ['inplace', 2],
      ['inplace', 2],
    ]);
    expect(error(result.f32)).toBeLessThan(1e-4);
    expect(error(result.mxfp4)).toBeGreaterThan(1e-3);
    expect(error(result.again)).toBeLessThan(1e-6);
  }, 240_000);
});

/** Lets transformers.js take everything from the page's own site. */
async function openModels(page: Page): Promise<void> {
  await page.evaluate(() => {
    // Everything comes from this site.
    const { env } = (globalThis as unknown as Modules).transformers;
    env.allowRemoteModels = false;
    env.allowLocalModels = true;
    env.localModelPath = '/models/';
    env.useBrowserCache = false;
    env.useWasmCache = false;
    const program = '/ort/ort-wasm-simd-threaded.asyncify';
    const wasm = env.backends.onnx.wasm as { wasmPaths?: unknown };
    wasm.wasmPaths = { mjs: `${program}.mjs`, wasm: `${program}.wasm` };
  });
}

// On a processor they take minutes: MXATTN_LONG_TESTS=1 runs them.
describe.skipIf(!executable || !process.env.MXATTN_LONG_TESTS)(
  'the example models in Chromium on WebGPU',
  () => {
    it('story-llama writes the same 50 tokens as stock, in place', async () => {
      const result = await withPage(executable!, site(MODELS), async (page) => {
        await openModels(page);
        return page.evaluate(async () => {
          const { patching, transformers } = globalThis as unknown as Modules;
          const generate = async () => {
            const run = await transformers.pipeline('text-generation', 'story-llama', {
              device: 'webgpu',
              dtype: 'fp32',
            });
            const [{ generated_text }] = (await run('Once upon a time there was a little', {
              max_new_tokens: 50,
              do_sample: false,
            })) as [{ generated_text: string }];
            await run.dispose();
            return generated_text;
          };
          const stock = await generate();
          patching.patch({ precision: 'f32' });
          const f32 = await generate();
          patching.patch({ precision: 'f32', kvCacheFormat: 'mxfp4' });
          const packed = await generate();
          return { stock, f32, packed, reports: patching.patchReport() };
        });
      });
      expect(result.f32).toBe(result.stock);
      // Exact attention on rounded keys and values: another story at some point.
      expect(result.packed.slice(0, 45)).toBe(result.stock.slice(0, 45));
      expect(result.packed.length).toBeGreaterThan(100);
      const { reports } = result;
      expect(reports.map(({ backend, kvCache, replaced }) => [backend, kvCache, replaced.length])).toEqual([
        ['inplace', 'tensors', 8],
        ['inplace', 'packed', 8],
      ]);
    }, 600_000);

    it('emoji-dit gives the velocity of stock, in place', async () => {
      const result = await withPage(executable!, site(MODELS), async (page) => {
        await openModels(page);
        return page.evaluate(async () => {
          const { ort, ortOp } = globalThis as unknown as Modules;
          const bytes = new Uint8Array(
            await (await fetch('/models/emoji-dit/onnx/model.onnx')).arrayBuffer(),
          );
          const noisy = Float32Array.from({ length: 3 * 64 * 64 }, (_, i) => Math.sin(i * 12.9898) * 1.5);
          const run = async (options: object) => {
            const session = await ortOp.createSession(bytes, { ort, ...options });
            const { velocity } = await session.run({
              sample: new ort.Tensor('float32', noisy, [1, 3, 64, 64]),
              timestep: new ort.Tensor('float32', Float32Array.of(0.8), [1]),
              text_ids: new ort.Tensor('int64', new BigInt64Array([5n, 9n, 0n, 0n, 0n, 0n, 0n, 0n]), [1, 8]),
            });
            const data = (await velocity!.getData()) as Float32Array;
            const counts = session instanceof ortOp.InplaceSession ? session.dispatches : undefined;
            return { data: [...data], counts };
          };
          return { stock: await run({ backend: 'stock' }), f32: await run({ backend: 'inplace' }) };
        });
      });
      expect(result.f32.counts).toEqual({ inPlace: 8, left: {} });
      const error = relativeError(Float32Array.from(result.f32.data), Float32Array.from(result.stock.data));
      expect(error).toBeLessThan(1e-3);
    }, 600_000);
  },
);

function site(models: string) {
  const here = (name: string) => fileURLToPath(import.meta.resolve(name));
  // As transformers.js and the patch find it: its own version.
  const require = createRequire(here('@huggingface/transformers'));
  const ort = dirname(require.resolve('onnxruntime-web/webgpu'));
  const common = dirname(dirname(require.resolve('onnxruntime-common')));
  const ortOpRequire = createRequire(here('@mxattn/ort-op/web'));
  const protobuf = dirname(dirname(ortOpRequire.resolve('@bufbuild/protobuf')));
  return {
    directories: {
      '/core': dirname(here('@mxattn/core')),
      '/ort-op': dirname(dirname(here('@mxattn/ort-op/web'))),
      '/patch': dirname(dirname(here('@mxattn/transformers-patch/web'))),
      '/transformers': dirname(here('@huggingface/transformers')),
      '/protobuf': protobuf,
      '/ort': ort,
      '/common': common,
      '/models': models,
    },
    imports: {
      '@mxattn/core': '/core/index.js',
      '@mxattn/ort-op/web': '/ort-op/web/index.js',
      '@mxattn/transformers-patch/web': '/patch/web/index.js',
      '@huggingface/transformers': '/transformers/transformers.web.js',
      '@bufbuild/protobuf': '/protobuf/esm/index.js',
      '@bufbuild/protobuf/codegenv2': '/protobuf/esm/codegenv2/index.js',
      '@bufbuild/protobuf/wire': '/protobuf/esm/wire/index.js',
      'onnxruntime-web/webgpu': '/ort/ort.webgpu.bundle.min.mjs',
      'onnxruntime-common': '/common/esm/index.js',
    },
    globals: {
      ort: 'onnxruntime-web/webgpu',
      ortOp: '@mxattn/ort-op/web',
      patching: '@mxattn/transformers-patch/web',
      transformers: '@huggingface/transformers',
    },
  };
}

// Read once so that a missing build shows as such.
readFileSync(fileURLToPath(import.meta.resolve('@mxattn/ort-op/web')));
