import { type BlockScheme, hasHadamard, type Recipe, recipes } from '@mxattn/core';
import { type Constants, compose, type Piece } from './compose.js';
import { elementConstants, spareBits } from './operand-format.js';
import { BLOCK, channelsOf, className, type ShapeClass } from './shape-class.js';

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
    `quantise ${keys ? 'keys' : 'queries'} ${recipe.name} ${shape.headSize}`,
    ['problem', 'elements', 'quantise_rows'],
    {
      ...elementConstants(recipe.queryKey!),
      HEAD_SIZE: shape.headSize,
      HEAD_BLOCKS: headBlocks,
      ROW_VECTORS: rowVectors,
      ROW_THREADS: rowThreads,
      GROUP_ROWS: groupRows,
      THREADS: rowThreads * groupRows,
      KEYS: keys,
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
    `quantise values ${recipe.name} ${shape.valueHeadSize}${marks ? ' marks' : ''}`,
    ['problem', 'elements', 'quantise_values'],
    {
      ...elementConstants(recipe.value as BlockScheme),
      MARKS: marks,
      VALUE_SIZE: shape.valueHeadSize,
      VALUE_CHANNELS: channelsOf(shape).valueChannels,
    },
    { unroll: false },
  );
}

/** @param marks only heads that are marked as unsuited for matrix units. */
export function attendDot4(shape: ShapeClass, options: KernelOptions, marks = false): Kernel {
  const { headBlocks, chunkBlocks, chunks, rowVectors, valueChunk, valueChannels } = channelsOf(shape);
  return kernel(
    `attend dot4 ${className(shape)}${marks ? ' marks' : ''}`,
    ['problem', 'rows', 'fused_softmax', 'normalise', 'attend_dot4'],
    {
      ...variants(shape),
      ADJUSTED: shape.bias || shape.softcap,
      MARKS: marks,
      HEAD_BLOCKS: headBlocks,
      CHUNK_BLOCKS: chunkBlocks,
      CHUNKS: chunks,
      ONE_CHUNK: chunks === 1,
      ROW_VECTORS: rowVectors,
      VALUE_SIZE: shape.valueHeadSize,
      VALUE_CHUNK: valueChunk,
      VALUE_CHANNELS: valueChannels,
    },
    options,
  );
}

export function attendF32(shape: ShapeClass, options: KernelOptions): Kernel {
  return kernel(
    `attend f32 ${className(shape)}`,
    ['problem', 'rows', 'normalise', 'attend_f32'],
    {
      ...variants(shape),
      QUADS: shape.headSize % 4 === 0 && shape.valueHeadSize % 4 === 0,
      HEAD_SIZE: shape.headSize,
      CHUNKS: Math.ceil(shape.headSize / BLOCK),
      VALUE_SIZE: shape.valueHeadSize,
      VALUE_CHUNK: channelsOf(shape).valueChunk,
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
      SPARE_BITS: spareBits(recipe.queryKey!),
      HEAD_BLOCKS: headBlocks,
      ROW_VECTORS: rowVectors,
      GROUP_ROWS: ALIGNED_ROWS,
      ALIGNED_ROWS: keys ? ALIGNED_ROWS : 1,
    },
    { unroll: false },
  );
}

export function topValueScales(shape: ShapeClass, recipe: Recipe): Kernel {
  return valueKernel('top scales of values', 'top_value_scales', shape, recipe);
}

export function alignValues(shape: ShapeClass, recipe: Recipe): Kernel {
  return valueKernel('align values', 'align_values', shape, recipe);
}

function valueKernel(name: string, piece: Piece, shape: ShapeClass, recipe: Recipe): Kernel {
  return kernel(
    `${name} ${recipe.name} ${shape.valueHeadSize}`,
    ['problem', piece],
    { SPARE_BITS: spareBits(recipe.value as BlockScheme), VALUE_CHANNELS: channelsOf(shape).valueChannels },
    { unroll: false },
  );
}

const MATRIX_DIRECTIVES = `enable chromium_experimental_subgroup_matrix;
enable subgroups;
enable f16;
diagnostic(off, chromium.subgroup_matrix_uniformity);
diagnostic(off, subgroup_uniformity);`;

/** Query rows of a workgroup of the kernel on matrix units: 32 for each pair of subgroups. */
export function matrixRows({ headSize }: ShapeClass): number {
  // As many invocations as a tile of keys has 16 bytes.
  return headSize;
}

/** For head sizes of 64 and 128, and as many values. */
export function attendMatrix(shape: ShapeClass): Kernel {
  const key = `attend matrix ${className(shape)}`;
  const constants = {
    PAIRS: matrixRows(shape) / 32,
    ...variants(shape),
    ADJUSTED: shape.bias || shape.softcap,
    HEAD_SIZE: shape.headSize,
    VALUE_SIZE: shape.valueHeadSize,
  };
  const code = () =>
    compose(['problem', 'rows', 'attend_matrix'], constants, { unroll: true, directives: MATRIX_DIRECTIVES });
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

export function appendTokens(headSize: number): Kernel {
  return cacheKernel('append', ['cache', 'cache_rotation', 'elements', 'append'], headSize, {
    ...elementConstants(recipes.mxfp4.queryKey!),
    ...rotation(headSize),
  });
}

export function unpackTokens(headSize: number): Kernel {
  return cacheKernel('unpack', ['cache', 'cache_rotation', 'unpack'], headSize, rotation(headSize));
}

export function decode(headSize: number, bias: boolean): Kernel {
  return cacheKernel(bias ? 'decode bias' : 'decode', ['cache', 'decode'], headSize, {
    EXCHANGED: Math.max(DECODE_KEYS, 4 * headSize),
    BIAS: bias,
  });
}

export function combine(headSize: number, sinks: boolean): Kernel {
  return cacheKernel(sinks ? 'combine sinks' : 'combine', ['cache', 'combine'], headSize, { SINKS: sinks });
}

/** What is injected into the pieces: the transforms of a score that this attention has. */
function variants({ softcap, bias, sinks }: ShapeClass): Constants {
  return { SOFTCAP: softcap, BIAS: bias, SINKS: sinks };
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
