import { convertModel, findAttention, type TargetName } from '@mxattn/ort-op';
import type { Tensor } from 'onnxruntime-node';
import { describe, expect, it } from 'vitest';
import { relativeError, runStock, stockSession } from './stock.js';
import { zooFeeds, zooModel, zooNames } from './zoo.js';

interface Expected {
  /** Self- and cross-attentions, in graph order. */
  readonly kinds: string;
  readonly heads: number;
  readonly kvHeads?: number;
}

/** What each architecture of the zoo holds. */
const architectures: Readonly<Record<string, Expected>> = {
  bart: { kinds: 'self self self cross self cross', heads: 2 },
  bert: { kinds: 'self self', heads: 2 },
  clip_vision: { kinds: 'self self', heads: 2 },
  deberta_v2: { kinds: 'self self', heads: 2 },
  dinov2: { kinds: 'self self', heads: 2 },
  distilbert: { kinds: 'self self', heads: 2 },
  gemma2: { kinds: 'self self', heads: 4, kvHeads: 2 },
  gpt2: { kinds: 'self self', heads: 2 },
  gpt_neox: { kinds: 'self self', heads: 2 },
  llama: { kinds: 'self self', heads: 4, kvHeads: 2 },
  mistral: { kinds: 'self self', heads: 4, kvHeads: 2 },
  phi3: { kinds: 'self self', heads: 4, kvHeads: 2 },
  roberta: { kinds: 'self self', heads: 2 },
  swin: { kinds: 'self self self self', heads: 1 },
  t5_encoder: { kinds: 'self self', heads: 2 },
  vit: { kinds: 'self self', heads: 2 },
  whisper: { kinds: 'self self self cross self cross', heads: 2 },
};

/** Models of which no attention can be replaced, and why. */
const left: Readonly<Record<string, RegExp>> = {
  'gemma2.eager.ts17': /soft-capped/,
  'gemma2.eager.dynamo18': /soft-capped/,
};

describe('the zoo', () => {
  it('is complete', () => {
    expect(zooNames).toHaveLength(58);
    expect(new Set(zooNames.map((name) => name.split('.')[0]))).toEqual(new Set(Object.keys(architectures)));
  });

  for (const name of zooNames) {
    it(name, async () => {
      const { kinds, heads, kvHeads = heads } = architectures[name.split('.')[0]!]!;
      const model = zooModel(name);
      const attentions = findAttention(model);
      expect(attentions.left).toEqual([]);
      expect(attentions.found.map((each) => (each.selfAttention ? 'self' : 'cross')).join(' ')).toBe(kinds);
      expect(attentions.found[0]).toMatchObject({ heads, kvHeads, headSize: 32, valueHeadSize: 32 });

      // The runtime's own operator is tested with one export of each architecture.
      const targets: TargetName[] = name.endsWith('eager.ts17') ? ['fused', 'contrib'] : ['fused'];
      const session = await stockSession(model);
      const feeds = Object.fromEntries(
        Object.entries(zooFeeds(name)).filter(([input]) => session.inputNames.includes(input)),
      );
      const expected = await session.run(feeds);
      await session.release();
      for (const target of targets) {
        const { model: converted, report } = convertModel(model, { target, crossAttention: true });
        const reasons = new Set(report.left.map((each) => each.reason));
        if (left[name]) expect([...reasons].join()).toMatch(left[name]);
        else expect(report.left).toEqual([]);
        const actual = await runStock(converted, feeds);
        for (const [output, tensor] of Object.entries(expected)) {
          expect((tensor.data as Float32Array).every(Number.isFinite)).toBe(true);
          expect(relativeError(actual[output] as Tensor, tensor as Tensor)).toBeLessThan(1e-4);
        }
      }
    });
  }
});
