import type { Page } from '@mxattn/browser';
import type * as core from '@mxattn/core';
import type { Row } from '../conformance/table.js';

/** Typed arrays travel to a page and back as base64: element by element they take seconds. */
export async function attend(
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
