import { MxattnError } from '../errors.js';

/** Axis order of query, key, value and output: B batch, H heads, S sequence, D head size. */
export type Layout = 'BHSD' | 'BSHD';

/** Keys a query may see around its own position, in tokens, not counting the position itself. */
export interface Window {
  /** Keys before the query's position. A Hugging Face `sliding_window` of W is `left: W - 1`. */
  readonly left: number;
  /** Keys after the query's position; 0 together with `causal`. */
  readonly right: number;
}

/**
 * Everything about one attention but its data. Every backend takes it.
 *
 * out = softmax(mask(softcap(scale * Q K^T)) + bias) V, per head; query head h reads key/value head
 * floor(h / (heads / kvHeads)). The position of query i among the keys is i + (keyLength - queryLength)
 * (bottom-right alignment).
 */
export interface AttentionSpec {
  readonly batch: number;
  /** Query heads. */
  readonly heads: number;
  /** Key and value heads; divides `heads` (GQA, MQA). */
  readonly kvHeads: number;
  readonly queryLength: number;
  readonly keyLength: number;
  /**
   * Tokens that the key and value tensors have room for, as in a cache that is allocated once; those from keyLength on
   * are never read. Null: no more than keyLength.
   */
  readonly keyCapacity: number | null;
  /** Channels of query and key. */
  readonly headSize: number;
  /** Channels of value and output. */
  readonly valueHeadSize: number;
  readonly layout: Layout;
  /** Factor on the raw scores, usually 1 / sqrt(headSize). */
  readonly scale: number;
  /** A query sees keys up to its own position. */
  readonly causal: boolean;
  readonly window: Window | null;
  /** Scores become softcap * tanh(score / softcap) before masks; 0 leaves them. */
  readonly softcap: number;
}

/** What {@link attentionSpec} needs; the rest has defaults. */
export type AttentionSpecInit = Pick<AttentionSpec, 'heads' | 'queryLength' | 'keyLength' | 'headSize'> &
  Partial<AttentionSpec>;

/**
 * Completes and checks a spec. Defaults: batch 1, no spare key capacity, as many key/value heads as heads, valueHeadSize =
 * headSize, layout BHSD, scale 1 / sqrt(headSize), no causal mask, window or softcap.
 *
 * @throws MxattnError naming the field that is out of range.
 */
export function attentionSpec(init: AttentionSpecInit): AttentionSpec {
  const spec: AttentionSpec = {
    batch: 1,
    keyCapacity: null,
    kvHeads: init.heads,
    valueHeadSize: init.headSize,
    layout: 'BHSD',
    scale: 1 / Math.sqrt(init.headSize),
    causal: false,
    window: null,
    softcap: 0,
    ...init,
  };
  const sizes = [
    'batch',
    'heads',
    'kvHeads',
    'queryLength',
    'keyLength',
    'headSize',
    'valueHeadSize',
  ] as const;
  for (const field of sizes) {
    // Sequences may be empty (a cache before its first token); sizes of the model may not.
    const least = field.endsWith('Length') || field === 'batch' ? 0 : 1;
    if (!Number.isInteger(spec[field]) || spec[field] < least) {
      throw new MxattnError(`attention spec: ${field} is ${spec[field]}, expected an integer >= ${least}`);
    }
  }
  if (spec.heads % spec.kvHeads !== 0) {
    throw new MxattnError(`attention spec: kvHeads (${spec.kvHeads}) does not divide heads (${spec.heads})`);
  }
  if (
    spec.keyCapacity !== null &&
    !(Number.isInteger(spec.keyCapacity) && spec.keyCapacity >= spec.keyLength)
  ) {
    throw new MxattnError(
      `attention spec: keyCapacity is ${spec.keyCapacity}, expected null or an integer from keyLength, ${spec.keyLength}`,
    );
  }
  if (!Number.isFinite(spec.scale)) throw new MxattnError(`attention spec: scale is ${spec.scale}`);
  if (!(spec.softcap >= 0 && spec.softcap < Infinity)) {
    throw new MxattnError(
      `attention spec: softcap is ${spec.softcap}, expected 0 (none) or a positive number`,
    );
  }
  if (spec.window && !(spec.window.left >= 0 && spec.window.right >= 0)) {
    throw new MxattnError(
      `attention spec: window is ${spec.window.left} left, ${spec.window.right} right; both must be >= 0`,
    );
  }
  if (spec.layout !== 'BHSD' && spec.layout !== 'BSHD') {
    throw new MxattnError(`attention spec: layout is ${String(spec.layout)}, expected BHSD or BSHD`);
  }
  return spec;
}
