import { DataType, type ModelProto, readModel } from '@mxattn/ort-op';
import { noise } from './noise.js';

/**
 * A test model whose random weights were taken out (test/models/strip-weights.mjs), with reproducible ones of a size that
 * keeps activations near 1.
 */
export function withWeights(stripped: Uint8Array): ModelProto {
  const model = readModel(stripped);
  (model.graph?.initializer ?? []).forEach((tensor, index) => {
    const dims = tensor.dims.map(Number);
    const count = dims.reduce((a, b) => a * b, 1);
    if (tensor.dataType !== DataType.FLOAT || tensor.rawData.byteLength > 0 || count <= 64) return;
    const size = dims.length > 1 ? 1.5 / Math.sqrt(dims[0]!) : 0.5;
    const weights = noise(count, index + 1).map((value) => value * size);
    tensor.rawData = new Uint8Array(weights.buffer);
  });
  return model;
}
