import { fused, type Recipe, recipes, rowSoftmax } from '@mxattn/core';
import { type PaperPrecision, paperPrecisions } from './plan.js';

/** The weight of one key that lies above 127 others, in a tile after the first. */
export interface LateKey {
  /** Log2 units above the others. */
  height: number;
  exact: number;
  fused: Record<PaperPrecision, number>;
  withoutRollback: Record<PaperPrecision, number>;
}

const KEYS = 128;

function weight(recipe: Recipe, height: number, rollback: boolean): number {
  const { softmax, tile } = recipe;
  const { weights } = softmax;
  const pipeline =
    rollback || weights.kind !== 'exponential' || !weights.operand ? softmax : fused(weights.operand, null);
  const scores = new Float64Array(KEYS);
  const values = new Float64Array(KEYS);
  scores[KEYS - 1] = height;
  values[KEYS - 1] = 1;
  const out = new Float64Array(1);
  rowSoftmax(pipeline, tile, 1).run(scores, 0, KEYS, values, -Infinity, out);
  return out[0]!;
}

/** The late-key test: V is one-hot, so that the output is the weight. */
export function lateKeys(): LateKey[] {
  const all = (height: number, rollback: boolean) =>
    Object.fromEntries(
      paperPrecisions.map((name) => [name, weight(recipes[name], height, rollback)]),
    ) as Record<PaperPrecision, number>;
  return [1, 2, 4, 8, 10, 12, 16, 24].map((height) => ({
    height,
    exact: 2 ** height / (KEYS - 1 + 2 ** height),
    fused: all(height, true),
    withoutRollback: all(height, false),
  }));
}
