import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { findChromium, type Page, withPage } from '@mxattn/browser';
import type * as core from '@mxattn/core';
import { emulateAttention, precision, referenceAttention } from '@mxattn/core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { EMULATION_ERROR, FLOAT_ERROR } from '../conformance/bounds.js';
import { relativeError } from '../conformance/random.js';
import { type Row, table } from '../conformance/table.js';

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
  let page: Page;
  let done: () => void;
  let closed: Promise<void>;

  beforeAll(async () => {
    const opened = new Promise<Page>((resolve, reject) => {
      closed = withPage(executable!, site(), async (newPage) => {
        resolve(newPage);
        await new Promise<void>((finish) => {
          done = finish;
        });
      });
      closed.catch(reject);
    });
    page = await opened;
    await page.evaluate(() => {
      const { registerBackend, wasmBackend } = (globalThis as unknown as { mxattn: typeof core }).mxattn;
      for (const build of ['simd', 'relaxed-simd'] as const) registerBackend(wasmBackend({ build }));
    });
  });

  afterAll(async () => {
    done();
    await closed;
  });

  describe.each(backends)('%s', (backend) => {
    describe.each(['f32', 'mxfp6', 'mxfp4'] as const)('%s', (name) => {
      it.each(table)('$name', async (row) => {
        const output = await attend(page, row, name, backend);
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

/** Typed arrays travel to a page and back as base64: element by element they take seconds. */
async function attend(
  page: Page,
  row: Row,
  name: core.PrecisionName,
  backend: string,
): Promise<Float32Array> {
  const { query, key, value, bias, mask, sinks } = row.tensors;
  const argument = {
    spec: row.spec,
    name,
    backend,
    query: base64(query),
    key: base64(key),
    value: base64(value),
    bias: bias && { dims: [...bias.dims], data: base64(bias.data) },
    mask: mask && { dims: [...mask.dims], data: base64(mask.data) },
    sinks: sinks && base64(sinks),
  };
  const output = await page.evaluate(async ({ spec, name: recipe, backend: chosen, ...tensors }) => {
    const { attention } = (globalThis as unknown as { mxattn: typeof core }).mxattn;
    const bytes = (text: string) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
    const floats = (text: string) => new Float32Array(bytes(text).buffer);
    const result = await attention(
      {
        query: floats(tensors.query),
        key: floats(tensors.key),
        value: floats(tensors.value),
        ...(tensors.bias ? { bias: { dims: tensors.bias.dims, data: floats(tensors.bias.data) } } : {}),
        ...(tensors.mask ? { mask: { dims: tensors.mask.dims, data: bytes(tensors.mask.data) } } : {}),
        ...(tensors.sinks ? { sinks: floats(tensors.sinks) } : {}),
      },
      spec,
      { precision: recipe, backend: chosen },
    );
    let text = '';
    for (const byte of new Uint8Array(result.buffer)) text += String.fromCharCode(byte);
    return btoa(text);
  }, argument);
  return new Float32Array(Uint8Array.from(Buffer.from(output, 'base64')).buffer);
}

function base64({ buffer, byteOffset, byteLength }: Float32Array | Uint8Array): string {
  return Buffer.from(buffer, byteOffset, byteLength).toString('base64');
}
