import { attentionSpec, emulateAttention, precision } from '@mxattn/core';
import { convertModel, createSession, fusedValues, withOutputs, writeModel } from '@mxattn/ort-op';
import type { Tensor } from 'onnxruntime-node';
import { describe, expect, it } from 'vitest';
import { relativeError } from '../conformance/random.js';
import { DIFFUSION, diffusionFeeds, floats, LLM, llmFeeds, someTokens } from './support.js';

describe.each([
  ['the language model', LLM, () => llmFeeds(someTokens(300)), true],
  ['the diffusion model', DIFFUSION, () => diffusionFeeds(), false],
] as const)('captured from %s', (_, path, feeds, masked) => {
  it.each(['mxfp6', 'mxfp4'] as const)('every attention equals the emulation: %s', async (name) => {
    const { model } = convertModel(path);
    const attentions = fusedValues(model);
    const captured = attentions.flatMap(({ query, key, value, bias, output }) => [
      query,
      key,
      value,
      output,
      ...(bias ? [bias] : []),
    ]);
    const session = await createSession(writeModel(withOutputs(model, captured)), {
      backend: 'native',
      precision: name,
      kvCache: 'tensors',
      threads: 2,
    });
    const outputs = await session.run(feeds());
    expect(attentions).toHaveLength(8);
    // Half of the layers of the larger model: the emulation takes its time.
    for (const names of attentions.filter(({ layer }) => masked || layer % 4 === 0)) {
      const [query, key, value] = [names.query, names.key, names.value].map(
        (each) => outputs[each] as Tensor,
      );
      const bias = names.bias === undefined ? undefined : (outputs[names.bias] as Tensor);
      const [batch, heads, queryLength, headSize] = query!.dims as [number, number, number, number];
      const [, kvHeads, keyLength] = key!.dims as [number, number, number];
      const spec = attentionSpec({
        batch,
        heads,
        kvHeads,
        queryLength,
        keyLength,
        headSize,
        scale: names.scale,
      });
      const emulated = emulateAttention(
        {
          query: floats(query),
          key: floats(key),
          value: floats(value),
          ...(bias ? { bias: { data: floats(bias), dims: bias.dims } } : {}),
        },
        spec,
        precision(name),
        { arithmetic: 'f32' },
      );
      expect(bias !== undefined).toBe(masked);
      expect(relativeError(floats(outputs[names.output]), emulated)).toBeLessThan(1e-3);
    }
  });
});
