import { convertModel, createSession, findAttention, type TargetName, writeModel } from '@mxattn/ort-op';
import type { InferenceSession, Tensor } from 'onnxruntime-node';
import { describe, expect, it } from 'vitest';
import { relativeError, runStock, stockSession } from './stock.js';
import { zooFeeds, zooModel, zooNames } from './zoo.js';

type Outputs = InferenceSession.OnnxValueMapType;

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

/** Models that a target leaves as they are, and why. */
const left: Readonly<Record<string, RegExp>> = {
  'gemma2.eager.ts17 contrib': /soft-capped/,
};

function expectEqual(actual: Outputs, expected: Outputs): void {
  for (const [output, tensor] of Object.entries(expected)) {
    expect((tensor.data as Float32Array).every(Number.isFinite)).toBe(true);
    expect(relativeError(actual[output] as Tensor, tensor as Tensor)).toBeLessThan(1e-4);
  }
}

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
        const reason = left[`${name} ${target}`];
        if (reason) for (const each of report.left) expect(each.reason).toMatch(reason);
        else expect(report.left).toEqual([]);
        expectEqual(await runStock(converted, feeds), expected);
        if (target !== 'fused') continue;
        const native = await createSession(writeModel(converted), { backend: 'native', threads: 2 });
        expect(native.report.replaced).toHaveLength(report.replaced.length);
        expectEqual(await native.run(feeds), expected);
        await native.release();
      }
    });
  }
});
