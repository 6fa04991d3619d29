import { readFileSync } from 'node:fs';
import { fromF16 } from '@mxattn/core';
import { type ConvertOptions, convertModel, type ModelProto, readModel, writeModel } from '@mxattn/ort-op';
import { InferenceSession, type Tensor } from 'onnxruntime-node';

/** A session of the stock runtime. */
export function stockSession(model: string | ModelProto): Promise<InferenceSession> {
  const options: InferenceSession.SessionOptions = { intraOpNumThreads: 2, logSeverityLevel: 3 };
  if (typeof model === 'string') return InferenceSession.create(model, options);
  return InferenceSession.create(writeModel(model), options);
}

/** Runs a model in the stock runtime. */
export async function runStock(model: string | ModelProto, feeds: Record<string, Tensor>) {
  const session = await stockSession(model);
  try {
    return await session.run(feeds);
  } finally {
    await session.release();
  }
}

/** Converts a file and sends the model through its bytes once, as a user who saves it does. */
export function convertFile(path: string, options?: ConvertOptions) {
  const { model, report } = convertModel(path, options);
  return { model: readModel(writeModel(model)), report };
}

/** The elements of a tensor of float32 or float16. */
export function numbersOf({ type, data }: Tensor): Float32Array {
  return type === 'float16' ? Float32Array.from(data as Uint16Array, fromF16) : (data as Float32Array);
}

/** |a - b| / |b|, as vectors. Infinite when one is not finite where the other is. */
export function relativeError(a: Tensor, b: Tensor): number {
  const [left, right] = [numbersOf(a), numbersOf(b)];
  if (left.length !== right.length) throw new Error(`${left.length} numbers against ${right.length}`);
  let [difference, norm] = [0, 0];
  right.forEach((value, index) => {
    const other = left[index] ?? NaN;
    if (Object.is(other, value)) return;
    difference += (other - value) ** 2;
    norm += value ** 2;
  });
  if (difference === 0) return 0;
  return Number.isNaN(difference) ? Infinity : Math.sqrt(difference / norm);
}

/** How often each operator occurs in a model's main graph. */
export function operatorCounts(model: ModelProto): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const node of model.graph?.node ?? []) counts[node.opType] = (counts[node.opType] ?? 0) + 1;
  return counts;
}

export function exampleModel(name: string): string {
  return new URL(`../../examples/models/${name}/onnx/model.onnx`, import.meta.url).pathname;
}

export function exampleBytes(name: string): Uint8Array {
  return readFileSync(exampleModel(name));
}
