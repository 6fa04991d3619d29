import { MxattnError } from '../errors.js';
import type { BlockScheme } from '../formats/block.js';
import type { ElementName, Rounding } from '../formats/element.js';
import { conventional, fused, type SoftmaxPipeline } from '../softmax/pipeline.js';

/** Keys that the softmax takes in one step; the frozen reference comes from the first such tile. */
export const KEY_TILE = 64;

/** V with one scale, amax / max, for the whole tensor instead of block scales. */
export interface TensorScheme {
  readonly format: ElementName;
  readonly rule: 'tensor';
  /** Default `even`. */
  readonly rounding?: Rounding;
}

/** A precision of attention, as data that every backend interprets. */
export interface Recipe {
  readonly name: string;
  /** Stable number under which native code knows the recipe. */
  readonly id: number;
  /** Q and K, blocks along the head axis; null leaves them as they are. */
  readonly queryKey: BlockScheme | null;
  /** V, blocks along the sequence; null leaves it as it is. */
  readonly value: BlockScheme | TensorScheme | null;
  /** Q and K are rotated along the head axis if the head size is a power of two. */
  readonly hadamard: boolean;
  /** Format to which folded and rotated Q and K are rounded before they are quantised; default none. */
  readonly stage?: 'bf16';
  /** Keys per softmax step. */
  readonly tile: number;
  readonly softmax: SoftmaxPipeline;
}

/** Names of the precisions. */
export type PrecisionName = 'f32' | 'mxfp6' | 'mxfp4' | 'mxfp8';

/** Every precision by its name. */
export const recipes: Readonly<Record<PrecisionName, Recipe>> = {
  f32: {
    name: 'f32',
    id: 0,
    queryKey: null,
    value: null,
    hadamard: false,
    tile: KEY_TILE,
    softmax: conventional(null),
  },
  mxfp6: {
    name: 'mxfp6',
    id: 1,
    queryKey: { format: 'e2m3', rule: 'floor' },
    value: { format: 'e2m3', rule: 'floor' },
    hadamard: true,
    tile: KEY_TILE,
    softmax: fused({ format: 'e2m3', scale: 'floor' }),
  },
  mxfp4: {
    name: 'mxfp4',
    id: 2,
    queryKey: { format: 'e2m1', rule: 'ceil' },
    value: { format: 'e2m1', rule: 'ceil' },
    hadamard: true,
    tile: KEY_TILE,
    // Four bits are too few for the weights: the paper's MXFP4 keeps six.
    softmax: fused({ format: 'e2m3', scale: 'ceil' }),
  },
  mxfp8: {
    name: 'mxfp8',
    id: 3,
    queryKey: { format: 'e4m3', rule: 'even2' },
    value: { format: 'e4m3', rule: 'ceil' },
    hadamard: true,
    tile: KEY_TILE,
    softmax: fused({ format: 'e4m3', scale: { exponent: 0 } }),
  },
};

/** Whether a string names a precision. */
export function isPrecisionName(name: string): name is PrecisionName {
  return Object.hasOwn(recipes, name);
}

/**
 * The recipe of a precision.
 *
 * @throws MxattnError listing the known names.
 */
export function precision(name: string): Recipe {
  if (isPrecisionName(name)) return recipes[name];
  throw new MxattnError(`unknown precision "${name}"; known: ${Object.keys(recipes).join(', ')}`);
}
