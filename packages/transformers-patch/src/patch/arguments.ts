import type { InferenceSession } from 'onnxruntime-common';

/** The arguments of any form of `InferenceSession.create`. */
export function modelArguments(args: readonly unknown[]): {
  model: string | Uint8Array;
  options: InferenceSession.SessionOptions;
} {
  const [source, second, third, fourth] = args;
  if (typeof source === 'string' || ArrayBuffer.isView(source)) {
    const model =
      typeof source === 'string'
        ? source
        : new Uint8Array(source.buffer, source.byteOffset, source.byteLength);
    return { model, options: asOptions(second) };
  }
  const buffer = source as ArrayBuffer;
  if (typeof second !== 'number') return { model: new Uint8Array(buffer), options: asOptions(second) };
  const length = typeof third === 'number' ? third : undefined;
  return {
    model: new Uint8Array(buffer, second, length),
    options: asOptions(length === undefined ? third : fourth),
  };
}

function asOptions(value: unknown): InferenceSession.SessionOptions {
  return (value ?? {}) as InferenceSession.SessionOptions;
}
