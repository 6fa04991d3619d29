import type { Band, FoundAttention } from '../find/index.js';
import type { Target } from './targets/target.js';

/** What a target masks by position itself, and the attention without it. */
export function withoutBand(
  target: Pick<Target, 'masksBand'>,
  attention: FoundAttention,
): { band: Band | undefined; rest: FoundAttention } {
  const band = tightestBand(attention);
  if (!band || !target.masksBand?.(attention)) return { band: undefined, rest: attention };
  return { band, rest: { ...attention, bias: attention.bias.filter((term) => !term.band) } };
}

/** All bands of an attention in one, if it has any. */
export function tightestBand({ bias }: FoundAttention): Band | undefined {
  const bands = bias.flatMap(({ band }) => band ?? []);
  if (bands.length === 0) return undefined;
  const tighter = (a: number, b: number) => (a < 0 || b < 0 ? Math.max(a, b) : Math.min(a, b));
  return bands.reduce((a, b) => ({ left: tighter(a.left, b.left), right: tighter(a.right, b.right) }));
}
