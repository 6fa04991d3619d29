import { MxattnError } from '../errors.js';
import type { BlockScheme } from '../formats/block.js';
import type { ElementName, Rounding } from '../formats/element.js';
import {
  conventional,
  directE4m3,
  efq,
  fused,
  type SoftmaxPipeline,
  type WeightOperand,
} from '../softmax/pipeline.js';

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
  /**
   * Operands share one exponent per line (a token of Q or K, a channel of V), as kernels on 8-bit integers have
   * it: blocks with small scales lose the bits that do not fit. Default: every block keeps its own.
   */
  readonly aligned?: boolean;
  /** Keys per softmax step. */
  readonly tile: number;
  readonly softmax: SoftmaxPipeline;
}

/** Names of the precisions; {@link recipes} says what each is. */
export type PrecisionName =
  | 'f32'
  | 'mxfp6'
  | 'mxfp4'
  | 'mxfp8'
  | 'efq4'
  | 'efq4-lut'
  | 'f4f8'
  | 'f6f8'
  | 'f6f4'
  | 'f8f6'
  | 'mxfp6-direct'
  | 'mxfp8-lifted';

type RecipeData = Omit<Recipe, 'name'>;

const E4M3_QK: BlockScheme = { format: 'e4m3', rule: 'even2' };
const E2M3: BlockScheme = { format: 'e2m3', rule: 'floor' };
const E2M1: BlockScheme = { format: 'e2m1', rule: 'ceil' };
const E4M3_TENSOR: TensorScheme = { format: 'e4m3', rule: 'tensor' };

const E4M3_WEIGHTS: WeightOperand = { format: 'e4m3', scale: { exponent: 0 } };
const E2M3_WEIGHTS: WeightOperand = { format: 'e2m3', scale: 'floor' };
// Four bits are too few for the weights: the paper's MXFP4 keeps six.
const E2M3_CEIL_WEIGHTS: WeightOperand = { format: 'e2m3', scale: 'ceil' };

function quantized(
  id: number,
  queryKey: BlockScheme,
  value: BlockScheme | TensorScheme,
  softmax: SoftmaxPipeline,
): RecipeData {
  return { id, queryKey, value, hadamard: true, tile: KEY_TILE, softmax };
}

const data: Record<PrecisionName, RecipeData> = {
  f32: {
    id: 0,
    queryKey: null,
    value: null,
    hadamard: false,
    tile: KEY_TILE,
    softmax: conventional(null),
  },
  mxfp6: quantized(1, E2M3, E2M3, fused(E2M3_WEIGHTS)),
  mxfp4: quantized(2, E2M1, E2M1, fused(E2M3_CEIL_WEIGHTS)),
  mxfp8: quantized(3, E4M3_QK, { format: 'e4m3', rule: 'ceil' }, fused(E4M3_WEIGHTS)),
  efq4: quantized(4, E2M1, E2M1, efq(-2.2, 0.65)),
  'efq4-lut': quantized(5, E2M1, E2M1, efq(-2.52, 0.35, [0, 1, 1, 1, 1, 1, 2, 2, 3, 4, 4, 5, 6, 6, 7, 7])),
  // FP8 V has one scale for the whole tensor.
  f4f8: quantized(6, E2M1, E4M3_TENSOR, fused(E4M3_WEIGHTS)),
  f6f8: quantized(7, E2M3, E4M3_TENSOR, fused(E4M3_WEIGHTS)),
  f6f4: quantized(8, E2M3, E2M1, fused(E2M3_CEIL_WEIGHTS)),
  f8f6: quantized(9, E4M3_QK, E2M3, fused(E2M3_WEIGHTS)),
  'mxfp6-direct': quantized(10, E2M3, E2M3, directE4m3(4)),
  'mxfp8-lifted': quantized(
    11,
    E4M3_QK,
    { format: 'e4m3', rule: 'ceil' },
    fused({ format: 'e4m3', scale: { exponent: -4 } }),
  ),
};

/**
 * Every precision by its name:
 * - `f32`: nothing is quantised, conventional softmax.
 * - `mxfp8`, `mxfp6`, `mxfp4`: Fused-Softmax Attention (arXiv 2611.09225); `mxfp4` has six-bit weights.
 * - `efq4`, `efq4-lut`: MXFP4 operands and the four-bit weights of EFQ-Softmax (arXiv 2609.09721).
 * - `f4f8`, `f6f8`, `f6f4`, `f8f6`: mixed formats of AMD's kernels, bits of Q and K, then bits of V.
 * - `mxfp6-direct`: MXFP6 operands, weights straight as E4M3 codes that are 16 at the reference.
 * - `mxfp8-lifted`: `mxfp8` with weights that are 16 at the reference, so that a long tail does not vanish.
 */
export const recipes: Readonly<Record<PrecisionName, Recipe>> = Object.fromEntries(
  Object.entries(data).map(([name, recipe]) => [name, { name, ...recipe }]),
) as Record<PrecisionName, Recipe>;

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
