import { type BlockScheme, hasHadamard, type Recipe, recipes } from '@mxattn/core';
import { type Constants, compose, type Piece } from './compose.js';
import { elementConstants, multipliesFloats, spareBits } from './operand-format.js';
import { BLOCK, channelsOf, className, type ElementType, type ShapeClass } from './shape-class.js';

/** A kernel before it is compiled. */
export interface Kernel {
  /** Names the code: equal keys, equal code. */
  readonly key: string;
  readonly code: () => string;
}

/** What the code of kernels depends on beside the attention. */
export interface KernelOptions {
  /** See ComposeOptions. */
  readonly unroll: boolean;
}

/** Invocations of a workgroup that quantises rows. */
const QUANTISE_THREADS = 128;

/** Workgroup of the kernel that quantises query or key rows. */
export function rowGroups(shape: ShapeClass): { rowThreads: number; groupRows: number } {
  const rowThreads = (channelsOf(shape).headBlocks * BLOCK) / 8;
  return { rowThreads, groupRows: Math.max(1, Math.floor(QUANTISE_THREADS / rowThreads)) };
}

/** Largest head size whose row a workgroup of 256 invocations can quantise. */
export const LARGEST_HEAD_SIZE = 2048;

export function quantiseRows(shape: ShapeClass, recipe: Recipe, keys: boolean): Kernel {
  const { headBlocks, rowVectors } = channelsOf(shape);
  const { rowThreads, groupRows } = rowGroups(shape);
  const hadamard = recipe.hadamard && hasHadamard(shape.headSize);
  return kernel(
    `quantise ${keys ? 'keys' : 'queries'} ${recipe.name} ${shape.elementType} ${shape.headSize}`,
    ['problem', 'tensors', 'elements', 'quantise_rows'],
    {
      ...tensorConstants(shape),
      ...elementConstants(recipe.queryKey!),
      HEAD_SIZE: shape.headSize,
      HEAD_BLOCKS: headBlocks,
      ROW_VECTORS: rowVectors,
      ROW_THREADS: rowThreads,
      GROUP_ROWS: groupRows,
      THREADS: rowThreads * groupRows,
      KEYS: keys,
      FLOATS: multipliesFloats(recipe),
      HADAMARD: hadamard,
      QUADS: shape.headSize % 4 === 0,
      ...(hadamard
        ? {
            HADAMARD_BITS: Math.log2(shape.headSize),
            HADAMARD_NORM: Math.fround(1 / Math.sqrt(shape.headSize)),
          }
        : {}),
    },
    { unroll: false },
  );
}

export function quantiseValues(shape: ShapeClass, recipe: Recipe, marks: boolean): Kernel {
  return kernel(
    `quantise values ${recipe.name} ${shape.elementType} ${shape.valueHeadSize}${marks ? ' marks' : ''}`,
    ['problem', 'tensors', 'elements', 'quantise_values'],
    {
      ...tensorConstants(shape),
      ...elementConstants(recipe.value as BlockScheme),
      MARKS: marks,
      FLOATS: multipliesFloats(recipe),
      VALUE_SIZE: shape.valueHeadSize,
      VALUE_CHANNELS: channelsOf(shape).valueChannels,
    },
    { unroll: false },
  );
}

/** @param marks only heads that are marked as unsuited for matrix units. */
export function attendQuantised(
  shape: ShapeClass,
  recipe: Recipe,
  options: KernelOptions,
  marks: boolean,
): Kernel {
  return multipliesFloats(recipe) ? attendE4m3(shape, options, marks) : attendDot4(shape, options, marks);
}

function attendDot4(shape: ShapeClass, options: KernelOptions, marks: boolean): Kernel {
  const { headBlocks, chunkBlocks, chunks, rowVectors, valueChunk, valueChannels } = channelsOf(shape);
  return kernel(
    `attend dot4 ${className(shape)}${marks ? ' marks' : ''}`,
    ['problem', 'tensors', 'rows', 'fused_softmax', 'normalise', 'output', 'attend_dot4'],
    {
      ...variants(shape),
      ADJUSTED: shape.bias || shape.softcap,
      MARKS: marks,
      HEAD_BLOCKS: headBlocks,
      CHUNK_BLOCKS: chunkBlocks,
      CHUNKS: chunks,
      ONE_CHUNK: chunks === 1,
      ROW_VECTORS: rowVectors,
      VALUE_CHUNK: valueChunk,
      VALUE_CHANNELS: valueChannels,
    },
    options,
  );
}

export function attendF32(shape: ShapeClass, options: KernelOptions): Kernel {
  return kernel(
    `attend f32 ${className(shape)}`,
    ['problem', 'tensors', 'rows', 'normalise', 'output', 'float_rows', 'attend_f32'],
    {
      ...variants(shape),
      QUADS: shape.headSize % 4 === 0,
      HEAD_SIZE: shape.headSize,
      CHUNKS: Math.ceil(shape.headSize / BLOCK),
      VALUE_CHUNK: channelsOf(shape).valueChunk,
    },
    options,
  );
}

function attendE4m3(shape: ShapeClass, options: KernelOptions, marks: boolean): Kernel {
  const { headBlocks, valueChunk, valueChannels } = channelsOf(shape);
  return kernel(
    `attend e4m3 ${className(shape)}${marks ? ' marks' : ''}`,
    ['problem', 'tensors', 'rows', 'fused_softmax', 'normalise', 'output', 'float_rows', 'attend_e4m3'],
    {
      ...variants(shape),
      MARKS: marks,
      HEAD_BLOCKS: headBlocks,
      VALUE_CHUNK: valueChunk,
      VALUE_CHANNELS: valueChannels,
    },
    options,
  );
}

/** Rows whose packed integers a workgroup aligns; keys of these share a scale. */
export const ALIGNED_ROWS = 32;

export function alignRows(shape: ShapeClass, recipe: Recipe, keys: boolean): Kernel {
  const { headBlocks, rowVectors } = channelsOf(shape);
  return kernel(
    `align ${keys ? 'keys' : 'queries'} ${recipe.name} ${shape.headSize}`,
    ['problem', 'align_rows'],
    {
      KEYS: keys,
      FLOATS: multipliesFloats(recipe),
      SPARE_BITS: spareBits(recipe.queryKey!),
      HEAD_BLOCKS: headBlocks,
      ROW_VECTORS: rowVectors,
      GROUP_ROWS: ALIGNED_ROWS,
      ALIGNED_ROWS: keys ? ALIGNED_ROWS : 1,
    },
    { unroll: false },
  );
}

/** Places that small values may lose beside the largest of their channel. */
const LOST_PLACES = 2;
/** Places that float16 has below those of E4M3. */
const HALF_SPARE_PLACES = 18;

export function topValueScales(shape: ShapeClass, recipe: Recipe): Kernel {
  return valueKernel(`top scales of values ${recipe.name}`, 'top_value_scales', shape, {
    SPARE_BITS: spareBits(recipe.value as BlockScheme),
    LOST: multipliesFloats(recipe) ? HALF_SPARE_PLACES : LOST_PLACES,
  });
}

export function alignValues(shape: ShapeClass, recipe: Recipe): Kernel {
  return valueKernel(`align values ${recipe.name}`, 'align_values', shape, {
    FLOATS: multipliesFloats(recipe),
    SPARE_BITS: spareBits(recipe.value as BlockScheme),
  });
}

function valueKernel(name: string, piece: Piece, shape: ShapeClass, constants: Constants): Kernel {
  return kernel(
    `${name} ${shape.valueHeadSize}`,
    ['problem', piece],
    { ...constants, VALUE_CHANNELS: channelsOf(shape).valueChannels },
    { unroll: false },
  );
}

const MATRIX_DIRECTIVES = `enable chromium_experimental_subgroup_matrix;
enable subgroups;
enable f16;
diagnostic(off, chromium.subgroup_matrix_uniformity);
diagnostic(off, subgroup_uniformity);`;

/** Of an element of an operand on matrix units. */
export function alignedBytes(recipe: Recipe): number {
  return multipliesFloats(recipe) ? 2 : 1;
}

/** Query rows of a workgroup of the kernel on matrix units: 32 for each pair of subgroups. */
export const MATRIX_ROWS = 128;

/** For head sizes of 64 and 128, and as many values. Operands of some recipes are float16, not 8-bit integers. */
export function attendMatrix(shape: ShapeClass, recipe: Recipe): Kernel {
  const floats = multipliesFloats(recipe);
  const key = `attend matrix ${floats ? 'floats ' : ''}${className(shape)}`;
  // A tile of 32 keys in 16 bytes; the kernel has 64 invocations for each pair.
  const tileVectors = (shape.headSize * 32 * alignedBytes(recipe)) / 16;
  const constants = {
    PAIRS: MATRIX_ROWS / 32,
    COPIES: Math.max(1, tileVectors / (2 * MATRIX_ROWS)),
    FLOATS: floats,
    // Rows 16 bytes further apart meet fewer bank conflicts, but 48 KiB do not hold them.
    SCORE_STRIDE: floats && shape.headSize === 128 ? 9 : 10,
    ...variants(shape),
    ADJUSTED: shape.bias || shape.softcap,
    HEAD_SIZE: shape.headSize,
  };
  const code = () =>
    compose(['problem', 'tensors', 'rows', 'output', 'attend_matrix'], constants, {
      unroll: true,
      directives: MATRIX_DIRECTIVES,
    });
  return { key, code };
}

/** Keys of a workgroup of the decode kernel. */
export const DECODE_KEYS = 256;
/** Query heads that an invocation of the decode kernel serves. */
export const DECODE_HEADS = 4;

function cacheKernel(name: string, pieces: readonly Piece[], headSize: number, constants: Constants): Kernel {
  return {
    key: `${name} ${headSize}`,
    code: () =>
      compose(
        pieces,
        { HEAD_SIZE: headSize, ...constants },
        // Unrolled, as some of its lines have no form as a loop.
        { unroll: true, directives: 'requires packed_4x8_integer_dot_product;' },
      ),
  };
}

/** Constants of cache_rotation.wgsl. */
function rotation(headSize: number): Constants {
  return {
    HADAMARD_BITS: Math.log2(headSize),
    HADAMARD_ROUNDS: Math.ceil(Math.log2(headSize) / 3),
    HADAMARD_NORM: Math.fround(1 / Math.sqrt(headSize)),
  };
}

/** @param one There is one new token. */
export function appendTokens(headSize: number, elementType: ElementType, one: boolean): Kernel {
  const pieces = ['tensors', 'cache', 'cache_rotation', 'elements', 'append'] as const;
  return cacheKernel(`append ${one ? 'one ' : ''}${elementType}`, pieces, headSize, {
    ONE: one,
    ...tensorConstants({ elementType }),
    ...elementConstants(recipes.mxfp4.queryKey!),
    ...rotation(headSize),
  });
}

export function unpackTokens(headSize: number, elementType: ElementType): Kernel {
  const pieces = ['tensors', 'cache', 'cache_rotation', 'unpack'] as const;
  return cacheKernel(`unpack ${elementType}`, pieces, headSize, {
    ...tensorConstants({ elementType }),
    ...rotation(headSize),
  });
}

export function decode(headSize: number, elementType: ElementType, bias: boolean): Kernel {
  return cacheKernel(
    bias ? `decode ${elementType} bias` : 'decode',
    ['tensors', 'cache', 'decode'],
    headSize,
    {
      ...tensorConstants({ elementType }),
      EXCHANGED: Math.max(DECODE_KEYS, 4 * headSize),
      BIAS: bias,
    },
  );
}

export function combine(headSize: number, elementType: ElementType, sinks: boolean): Kernel {
  return cacheKernel(
    `combine ${elementType}${sinks ? ' sinks' : ''}`,
    ['tensors', 'cache', 'output', 'combine'],
    headSize,
    { ...tensorConstants({ elementType }), ...outputConstants(headSize), SINKS: sinks },
  );
}

/** Of tensors.wgsl. */
function tensorConstants({ elementType }: Pick<ShapeClass, 'elementType'>): Constants {
  return { HALVES: elementType === 'float16' };
}

/** Of output.wgsl. */
function outputConstants(valueHeadSize: number): Constants {
  return { VALUE_SIZE: valueHeadSize, VALUE_QUADS: valueHeadSize % 4 === 0 };
}

/** What is injected into the pieces that attend: the tensors, and the transforms of a score that this attention has. */
function variants(shape: ShapeClass): Constants {
  const { softcap, bias, sinks, valueHeadSize } = shape;
  return {
    ...tensorConstants(shape),
    ...outputConstants(valueHeadSize),
    SOFTCAP: softcap,
    BIAS: bias,
    SINKS: sinks,
  };
}

function kernel(
  key: string,
  pieces: readonly Piece[],
  constants: Constants,
  { unroll }: KernelOptions,
): Kernel {
  return {
    key: unroll ? `${key} unrolled` : key,
    code: () =>
      compose(pieces, constants, { unroll, directives: 'requires packed_4x8_integer_dot_product;' }),
  };
}
