import type { Tensor } from 'onnxruntime-node';

const types: Partial<Record<Tensor.Type, string>> = { float32: 'F32', int64: 'I64', bool: 'BOOL' };

/** The bytes of a safetensors file with these tensors. */
export function safetensors(tensors: Readonly<Record<string, Tensor>>, prefix = ''): Uint8Array {
  const header: Record<string, unknown> = {};
  const parts: Uint8Array[] = [];
  let end = 0;
  for (const [name, { type, dims, data }] of Object.entries(tensors)) {
    const { buffer, byteOffset, byteLength } = data as Float32Array;
    parts.push(new Uint8Array(buffer, byteOffset, byteLength));
    header[`${prefix}${name}`] = { dtype: types[type], shape: dims, data_offsets: [end, end + byteLength] };
    end += byteLength;
  }
  const text = new TextEncoder().encode(JSON.stringify(header));
  const length = new Uint8Array(new BigUint64Array([BigInt(text.length)]).buffer);
  return Buffer.concat([length, text, ...parts]);
}
