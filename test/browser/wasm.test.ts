import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { findChromium } from '@mxattn/browser';
import type * as core from '@mxattn/core';
import { emulateAttention, precision, referenceAttention } from '@mxattn/core';
import { describe, expect, it } from 'vitest';
import { EMULATION_ERROR, FLOAT_ERROR } from '../conformance/bounds.js';
import { relativeError } from '../conformance/random.js';
import { type Row, table } from '../conformance/table.js';
import { attend } from './attend.js';
import { suitePage } from './suite-page.js';

const executable = findChromium();
if (!executable) console.warn('skipped: no Chromium found; MXATTN_CHROMIUM can name one');

/** Name of the build: `wasm` is the one that the backend chooses itself. */
const backends = ['wasm', 'wasm-simd', 'wasm-relaxed-simd'] as const;

/** Computed once for all builds. */
const results = new Map<string, Float32Array>();

function expected({ name, tensors, spec }: Row, precisionName: core.PrecisionName): Float32Array {
  const key = `${precisionName} ${name}`;
  const known = results.get(key);
  if (known) return known;
  const result =
    precisionName === 'f32'
      ? referenceAttention(tensors, spec)
      : emulateAttention(tensors, spec, precision(precisionName), { arithmetic: 'f32' });
  results.set(key, result);
  return result;
}

describe.skipIf(!executable)('in Chromium', () => {
  const page = suitePage(executable!, site, async (opened) => {
    await opened.evaluate(() => {
      const { registerBackend, wasmBackend } = (globalThis as unknown as { mxattn: typeof core }).mxattn;
      for (const build of ['simd', 'relaxed-simd'] as const) registerBackend(wasmBackend({ build }));
    });
  });

  describe.each(backends)('%s', (backend) => {
    describe.each(['f32', 'mxfp6', 'mxfp4'] as const)('%s', (name) => {
      it.each(table)('$name', async (row) => {
        const output = await attend(page(), row, name, backend);
        const floatError = row.largeScores ? FLOAT_ERROR.largeScores : FLOAT_ERROR.usual;
        const bound = name === 'f32' ? floatError : EMULATION_ERROR;
        expect(relativeError(output, expected(row, name))).toBeLessThan(bound);
      });
    });
  });
});

function site() {
  const directory = dirname(fileURLToPath(import.meta.resolve('@mxattn/core')));
  return {
    directories: { '/core': directory },
    imports: { '@mxattn/core': '/core/index.js' },
    globals: { mxattn: '@mxattn/core' },
  };
}
