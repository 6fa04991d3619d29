/// <reference types="@webgpu/types" />
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { findChromium } from '@mxattn/browser';
import type * as core from '@mxattn/core';
import { emulateAttention, precision, referenceAttention } from '@mxattn/core';
import type * as webgpu from '@mxattn/ort-op/webgpu';
import { describe, expect, it } from 'vitest';
import { EMULATION_ERROR, FLOAT_ERROR } from '../conformance/bounds.js';
import { relativeError } from '../conformance/random.js';
import { table } from '../conformance/table.js';
import { attend } from './attend.js';
import { suitePage } from './suite-page.js';

/** Of the page. */
declare const navigator: { readonly gpu: GPU };

const executable = findChromium();
if (!executable) console.warn('skipped: no Chromium found; MXATTN_CHROMIUM can name one');

// Rows that share a few pipelines, which take SwiftShader seconds each; test/conformance has all rows.
const names = [
  '129 queries and keys',
  'two sequences',
  'layout BSHD',
  'grouped query heads',
  'causal, bottom-right',
  'window of 17 keys',
  'last keys 40 nats above the rest',
  'bias per head',
  'mask and bias',
  'some rows fully masked',
];
const rows = table.filter(({ name }) => names.includes(name));

describe.skipIf(!executable)('WebGPU in Chromium', () => {
  const page = suitePage(executable!, site, async (opened) => {
    await opened.evaluate(async () => {
      const { mxattn, kernels } = globalThis as unknown as { mxattn: typeof core; kernels: typeof webgpu };
      const adapter = await navigator.gpu.requestAdapter();
      if (!adapter) throw new Error('no adapter');
      const device = await kernels.requestKernelDevice(adapter);
      mxattn.registerBackend(kernels.webgpuBackend(device, { unroll: false }));
    });
  });

  it('describes the adapter', async () => {
    const description = await page().evaluate(() => {
      const { kernels } = globalThis as unknown as { kernels: typeof webgpu };
      return kernels.describeAdapter(navigator.gpu);
    });
    expect(description).toMatchObject({ kernels: { f32: 'float32', mxfp4: '8-bit dot products' } });
  });

  describe.each(['f32', 'mxfp6', 'mxfp4'] as const)('%s', (name) => {
    it.each(rows)('$name', async (row) => {
      const output = await attend(page(), row, name, 'webgpu');
      const { tensors, spec } = row;
      const floatError = row.largeScores ? FLOAT_ERROR.largeScores : FLOAT_ERROR.usual;
      const expected =
        name === 'f32'
          ? referenceAttention(tensors, spec)
          : emulateAttention(tensors, spec, precision(name), { arithmetic: 'f32' });
      expect(relativeError(output, expected)).toBeLessThan(name === 'f32' ? floatError : EMULATION_ERROR);
    });
  });
});

function site() {
  const directoryOf = (module: string) => dirname(fileURLToPath(import.meta.resolve(module)));
  return {
    directories: { '/core': directoryOf('@mxattn/core'), '/webgpu': directoryOf('@mxattn/ort-op/webgpu') },
    imports: { '@mxattn/core': '/core/index.js' },
    globals: { mxattn: '@mxattn/core', kernels: '/webgpu/index.js' },
  };
}
