import { attentionSpec, emulateAttention, precision } from '@mxattn/core';
import { convertModel, createSession, type ModelProto, writeModel } from '@mxattn/ort-op';
import type { Tensor } from 'onnxruntime-node';
import { describe, expect, it } from 'vitest';
import { relativeError } from '../conformance/random.js';
import { DIFFUSION, diffusionFeeds, floats, LLM, llmFeeds, someTokens } from './support.js';

/** A converted model whose attentions' operands and outputs are outputs too. */
function withOperands(path: string): {
  bytes: Uint8Array;
  attentions: { inputs: string[]; output: string; scale: number }[];
} {
  const { model } = convertModel(path);
  const graph = model.graph!;
  const nodes = graph.node.filter((node) => node.opType === 'FusedAttention');
  const attentions = nodes.map((node) => ({
    inputs: node.input.slice(0, 4),
    output: node.output[0]!,
    scale: node.attribute.find(({ name }) => name === 'scale')!.f,
  }));
  const known = new Set([...graph.output, ...graph.input].map(({ name }) => name));
  for (const name of new Set(attentions.flatMap(({ inputs, output }) => [...inputs, output]))) {
    if (known.has(name) || name === 'mxattn.no_bias') continue;
    graph.output.push(floatTensor(model, name));
  }
  return { bytes: writeModel(model), attentions };
}

/** A declaration like that of an output the model has, with a free shape. */
function floatTensor(model: ModelProto, name: string) {
  const like = model.graph!.output[0]!;
  const type = like.type!;
  return {
    ...like,
    name,
    type: {
      ...type,
      value: { case: 'tensorType' as const, value: { ...(type.value.value as object), shape: undefined } },
    },
  } as typeof like;
}

describe.each([
  ['the language model', LLM, () => llmFeeds(someTokens(300)), true],
  ['the diffusion model', DIFFUSION, () => diffusionFeeds(), false],
] as const)('captured from %s', (_, path, feeds, masked) => {
  it.each(['mxfp6', 'mxfp4'] as const)('every attention equals the emulation: %s', async (name) => {
    const { bytes, attentions } = withOperands(path);
    const session = await createSession(bytes, { backend: 'native', precision: name, threads: 2 });
    const outputs = await session.run(feeds());
    expect(attentions).toHaveLength(8);
    // Half of the layers of the larger model: the emulation takes its time.
    for (const { inputs, output, scale } of attentions.filter((__, layer) => masked || layer % 4 === 0)) {
      const [query, key, value] = inputs.map((input) => outputs[input] as Tensor);
      const bias = outputs[inputs[3]!] as Tensor | undefined;
      const [batch, heads, queryLength, headSize] = query!.dims as [number, number, number, number];
      const [, kvHeads, keyLength] = key!.dims as [number, number, number];
      const spec = attentionSpec({ batch, heads, kvHeads, queryLength, keyLength, headSize, scale });
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
      expect(relativeError(floats(outputs[output]), emulated)).toBeLessThan(1e-3);
    }
  });
});
