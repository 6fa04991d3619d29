import { toF16 } from '@mxattn/core';
import { convertModel, createSession, writeModel } from '@mxattn/ort-op';
import type { Tensor } from 'onnxruntime-node';
import { describe, expect, it } from 'vitest';
import { type ModelText, onnx } from './onnx-text.js';
import { expectReplaced, feedsOf, reasonsOf } from './replacement.js';
import { numbersOf, relativeError, runStock } from './stock.js';

/** The stock runtime rounds scores and probabilities to float16 on the way, FusedAttention does not. */
const tolerance = 2e-3;

/** Attention in float16 with lines between the scores `s` and the probabilities `p`. */
function half(lines: string, opset: number, inputs: Record<string, string> = {}): ModelText {
  return {
    nodes: `
      kt = Transpose<perm=[0,1,3,2]>(k)
      raw = MatMul(q, kt)
      scale = Cast<to=10>(0.3)
      s = Mul(raw, scale)
      ${lines}
      y = MatMul(p, v)`,
    inputs: { q: 'f16[B,2,S,8]', k: 'f16[B,2,T,8]', v: 'f16[B,2,T,6]', ...inputs },
    outputs: { y: 'f16[B,2,S,6]' },
    opset,
  };
}

const forms: Readonly<Record<string, (opset: number) => ModelText>> = {
  'all of it': (opset) => half('p = Softmax<axis=-1>(s)', opset),
  'a mask in float16': (opset) =>
    half('a = Add(s, m)\np = Softmax<axis=-1>(a)', opset, { m: 'f16[B,1,S,T]' }),
  'a mask with the lowest float16': (opset) =>
    half('low = Cast<to=10>(-65504.0)\na = Where(m, s, low)\np = Softmax<axis=-1>(a)', opset, {
      m: 'bool[B,1,S,T]',
    }),
  'a mask of -10000': (opset) =>
    half('low = Cast<to=10>(-10000.0)\na = Where(m, low, s)\np = Softmax<axis=-1>(a)', opset, {
      m: 'bool[S,T]',
    }),
  'a softmax in float32': (opset) =>
    half('w = Cast<to=1>(s)\nf = Softmax<axis=-1>(w)\np = Cast<to=10>(f)', opset),
  'a mask and a softmax in float32': (opset) =>
    half('w = Cast<to=1>(s)\na = Add(w, m)\nf = Softmax<axis=-1>(a)\np = Cast<to=10>(f)', opset, {
      m: 'f32[S,T]',
    }),
};

describe.each([23, 17, 14])('float16 attention in operator set %i', (opset) => {
  for (const [name, form] of Object.entries(forms)) {
    it(`with ${name}`, async () => {
      const text = form(opset);
      const { model } = await expectReplaced(text, { tolerance });
      const feeds = feedsOf(text.inputs);
      const session = await createSession(writeModel(model), { backend: 'native', threads: 2 });
      const [native, stock] = [await session.run(feeds), await runStock(model, feeds)];
      expect(relativeError(native.y as Tensor, stock.y as Tensor)).toBeLessThan(tolerance);
      await session.release();
    });
  }

  it('beside float32', async () => {
    const text = half('p = Softmax<axis=-1>(s)', opset, { k32: 'f32[B,2,T,8]' });
    await expectReplaced(
      {
        ...text,
        nodes: `
          ${text.nodes}
          q32 = Cast<to=1>(q)
          kt32 = Transpose<perm=[0,1,3,2]>(k32)
          s32 = MatMul(q32, kt32)
          p32 = Softmax<axis=-1>(s32)
          z = MatMul(p32, k32)`,
        outputs: { ...text.outputs, z: 'f32[B,2,S,8]' },
      },
      { count: 2, tolerance },
    );
  });
});

describe.each(['contrib', 'attention'] as const)('float16 attention as target %s', (target) => {
  for (const [name, form] of Object.entries(forms)) {
    it(`with ${name}`, async () => {
      await expectReplaced(form(23), { target, tolerance });
    });
  }
});

describe('float16 attention', () => {
  const attend = async (text: ModelText, feeds: Record<string, Tensor>) => {
    const { model } = convertModel(onnx(text), { crossAttention: true });
    const session = await createSession(writeModel(model), { backend: 'native', threads: 2 });
    const outputs = [await session.run(feeds), await runStock(model, feeds)];
    await session.release();
    return outputs.map(({ y }) => y as Tensor);
  };

  it('whose scores overflow float16 is the mean of the values', async () => {
    const text: ModelText = {
      nodes: 'y = Attention(q, k, v)',
      inputs: { q: 'f16[B,2,S,128]', k: 'f16[B,2,T,128]', v: 'f16[B,2,T,4]' },
      outputs: { y: 'f16[B,2,S,4]' },
      opset: 23,
    };
    const { q, k, v } = feedsOf(text.inputs) as Record<'q' | 'k' | 'v', Tensor>;
    (q.data as Uint16Array).fill(toF16(23));
    (k.data as Uint16Array).fill(toF16(23));
    const values = numbersOf(v);
    const mean = (head: number, channel: number) => {
      const column = Array.from({ length: 7 }, (_, key) => values[(head * 7 + key) * 4 + channel]!);
      return column.reduce((a, b) => a + b) / 7;
    };
    for (const y of await attend(text, { q, k, v })) {
      const expected = Array.from({ length: 3 * 2 * 5 * 4 }, (_, at) => mean(Math.floor(at / 20), at % 4));
      numbersOf(y).forEach((value, at) => {
        expect(Math.abs(value - expected[at]!)).toBeLessThan(1e-3);
      });
    }
  });

  it('is not changed by the lowest float16 on every key', async () => {
    const text = half('a = Add(s, m)\np = Softmax<axis=-1>(a)', 17, { m: 'f16[S,1]' });
    const feeds = feedsOf(text.inputs) as Record<'q' | 'k' | 'v' | 'm', Tensor>;
    const at = async (bias: number) => {
      (feeds.m.data as Uint16Array).fill(toF16(bias));
      return attend(text, feeds);
    };
    const [masked, plain] = [await at(-65504), await at(0)];
    expect(masked[0]!.data).toEqual(plain[0]!.data);
    // A float32 near 65504 keeps 2^-8 of a score.
    expect(relativeError(masked[1]!, plain[1]!)).toBeLessThan(5e-3);
  });
});

describe('attention of two element types', () => {
  it('is left', () => {
    const text = half('w = Cast<to=1>(s)\np = Softmax<axis=-1>(w)', 17, { v: 'f32[B,2,T,6]' });
    expect(reasonsOf({ ...text, outputs: { y: 'f32[B,2,S,6]' } })).toEqual([
      'its query, key and value are not of one element type',
    ]);
  });
});
