import { attention, fromF16, type HalfAttentionTensors, type PrecisionName } from '@mxattn/core';
import type * as Ort from 'onnxruntime-common';
import type { FusedValues } from '../../rewrite/index.js';
import { type Operands, type SplitAttention, specOf } from './attention.js';

/** Attention on this package's WebAssembly kernel, for sessions without WebGPU. */
export class WasmSplitAttention implements SplitAttention {
  readonly location = 'cpu';

  constructor(private readonly ort: typeof Ort) {}

  async compute(values: FusedValues, operands: Operands, precision: PrecisionName): Promise<Ort.Tensor> {
    const { query, key, value, bias } = operands;
    const spec = specOf(values, operands);
    const dims = [spec.batch, spec.heads, spec.queryLength, spec.valueHeadSize];
    const added = bias && { bias: { data: floats(bias), dims: bias.dims } };
    const options = { precision, backend: 'wasm' };
    if (query.type === 'float16') {
      const tensors = { query: halves(query), key: halves(key), value: halves(value), ...added };
      const output = await attention(tensors satisfies HalfAttentionTensors, spec, options);
      return new this.ort.Tensor('float16', output, dims);
    }
    const tensors = { query: floats(query), key: floats(key), value: floats(value), ...added };
    return new this.ort.Tensor('float32', await attention(tensors, spec, options), dims);
  }

  release(): void {}
}

/** Newer engines have Float16Array, whose bits these are. */
function halves({ data }: Ort.Tensor): Uint16Array {
  const { buffer, byteOffset, byteLength } = data as Uint16Array;
  return new Uint16Array(buffer, byteOffset, byteLength / 2);
}

function floats(tensor: Ort.Tensor): Float32Array {
  return tensor.type === 'float16'
    ? Float32Array.from(halves(tensor), fromF16)
    : (tensor.data as Float32Array);
}
