/** A number, string or list of them, with its type in GGUF. */
export type GgufValue =
  | { readonly type: 'u32' | 'i32' | 'f32'; readonly value: number }
  | { readonly type: 'string'; readonly value: string }
  | { readonly type: 'strings'; readonly value: readonly string[] }
  | { readonly type: 'i32s'; readonly value: readonly number[] };

/** A matrix [rows, columns], or a row, of float32. */
export interface GgufTensor {
  readonly name: string;
  readonly dims: readonly number[];
  readonly data: Float32Array;
}

const TYPES = { u32: 4, i32: 5, f32: 6, string: 8, array: 9 } as const;
const ALIGNMENT = 32;
const FLOAT32 = 0;

/** A file of llama.cpp's format GGUF, version 3 (ggml, docs/gguf.md), with float32 tensors. */
export function ggufFile(
  metadata: Readonly<Record<string, GgufValue>>,
  tensors: readonly GgufTensor[],
): Uint8Array {
  const parts: Uint8Array[] = [];
  let length = 0;
  const put = (part: Uint8Array) => {
    parts.push(part);
    length += part.byteLength;
  };
  const word = (value: number, kind: 'u32' | 'i32' | 'f32' = 'u32') => {
    const view = new DataView(new ArrayBuffer(4));
    if (kind === 'f32') view.setFloat32(0, value, true);
    else view.setInt32(0, value, true);
    put(new Uint8Array(view.buffer));
  };
  const long = (value: number) => put(new Uint8Array(BigUint64Array.of(BigInt(value)).buffer));
  const text = (value: string) => {
    const bytes = new TextEncoder().encode(value);
    long(bytes.byteLength);
    put(bytes);
  };
  const pad = () => put(new Uint8Array((ALIGNMENT - (length % ALIGNMENT)) % ALIGNMENT));

  put(new TextEncoder().encode('GGUF'));
  word(3);
  long(tensors.length);
  long(Object.keys(metadata).length);
  for (const [key, { type, value }] of Object.entries(metadata)) {
    text(key);
    if (type === 'strings' || type === 'i32s') {
      word(TYPES.array);
      word(type === 'strings' ? TYPES.string : TYPES.i32);
      long(value.length);
      for (const item of value) {
        if (typeof item === 'string') text(item);
        else word(item, 'i32');
      }
      continue;
    }
    word(TYPES[type]);
    if (type === 'string') text(value);
    else word(value, type);
  }
  let offset = 0;
  for (const { name, dims, data } of tensors) {
    text(name);
    word(dims.length);
    // The axis that changes fastest comes first.
    for (const dim of dims.toReversed()) long(dim);
    word(FLOAT32);
    long(offset);
    offset += Math.ceil(data.byteLength / ALIGNMENT) * ALIGNMENT;
  }
  for (const { data } of tensors) {
    pad();
    put(new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
  }
  pad();
  const file = new Uint8Array(length);
  let at = 0;
  for (const part of parts) {
    file.set(part, at);
    at += part.byteLength;
  }
  return file;
}
