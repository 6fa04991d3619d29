import { toF16 } from '@mxattn/core';
import { createSession, type WebSessionOptions } from '@mxattn/ort-op/web';
import { type InferenceSession, Tensor as NodeTensor } from 'onnxruntime-node';
import { expect } from 'vitest';
import { relativeError } from '../conformance/random.js';
import {
  type DecoderSpec,
  decoderFeeds,
  groupQueryDecoder,
  numbersIn,
} from '../graph/group-query-decoder.js';
import { onnx } from '../graph/onnx-text.js';
import { stockSession } from '../session/support.js';

/** Of the numbers of new tokens, which the stock runtime has not packed. Wrong numbers are about as far away as they are large. */
const PACKED_ERROR = 0.2;

/** Decodes with GroupQueryAttention on a packed cache, and on the stock runtime with the tokens that this gives. */
export async function expectPackedDecoder(
  shared: Pick<WebSessionOptions, 'ort' | 'device' | 'adapterInfo' | 'backend'>,
  variant: DecoderSpec,
): Promise<void> {
  const spec = { layers: 2, headSize: 64, ...variant };
  const model = onnx(groupQueryDecoder(spec));
  const ours = await createSession(model, { ...shared, precision: 'f32', kvCacheFormat: 'mxfp4' });
  expect(ours.report).toMatchObject({ backend: 'inplace', kvCache: 'packed', left: [] });
  const stock = await stockSession(model);
  let past: InferenceSession.OnnxValueMapType | undefined;
  for (const [seed, count] of [37, 1, 3, 1].entries()) {
    const run = { count, seed };
    const expected = await stock.run(
      decoderFeeds(NodeTensor, spec, { ...run, ...(past ? { past: await copied(past) } : {}) }),
    );
    past = await ours.run(decoderFeeds(shared.ort.Tensor, spec, { ...run, ...(past ? { past } : {}) }));
    for (const [name, stock] of Object.entries(expected)) {
      const [a, b] = [past[name], stock] as [NodeTensor, NodeTensor];
      expect([a.type, a.dims]).toEqual([b.type, b.dims]);
      expect(relativeError(await numbersIn(a), await numbersIn(b)), name).toBeLessThan(PACKED_ERROR);
    }
  }
  await ours.release();
}

/** The data of a cache as the stock runtime takes it. */
async function copied(outputs: InferenceSession.OnnxValueMapType) {
  const tensors = Object.entries(outputs).map(async ([name, value]) => {
    const { type, dims } = value as NodeTensor;
    const numbers = await numbersIn(value);
    const tensor =
      type === 'float16'
        ? new NodeTensor('float16', Uint16Array.from(numbers, toF16), dims)
        : new NodeTensor('float32', numbers, dims);
    return [name, tensor] as const;
  });
  return Object.fromEntries(await Promise.all(tensors));
}
