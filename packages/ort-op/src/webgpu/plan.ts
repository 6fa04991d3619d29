/// <reference types="@webgpu/types" />
import type { AttentionSpec, Recipe } from '@mxattn/core';
import {
  ALIGNED_ROWS,
  alignRows,
  alignValues,
  attendDot4,
  attendF32,
  attendMatrix,
  type KernelOptions,
  matrixRows,
  quantiseRows,
  quantiseValues,
  rowGroups,
  topValueScales,
} from './kernels.js';
import { weightCarry } from './operand-format.js';
import { packedSizes, problemUniform } from './problem.js';
import { channelsOf, type ShapeClass, shapeClass, suitsMatrix } from './shape-class.js';
import { bindings, compiled, Scratch, type Step } from './steps.js';

/** Query rows of a workgroup: ROWS of the attend kernels. */
const ROWS = 64;

/** The operands of one attention on a device, in the layout of the spec. The output is written, the others are read. */
export interface AttentionBuffers {
  readonly query: GPUBuffer;
  readonly key: GPUBuffer;
  readonly value: GPUBuffer;
  readonly output: GPUBuffer;
  readonly bias?: GPUBuffer;
  readonly sinks?: GPUBuffer;
}

/** Bias and sinks of an attention, without their data. */
export interface Extras {
  /** Steps in elements along [batch, heads, queryLength, keyLength]; null without a bias. */
  readonly biasStrides: readonly [number, number, number, number] | null;
  readonly sinks: boolean;
}

export interface PlanOptions extends KernelOptions {
  /** Use matrix units where they suit the attention. The device must have them. */
  readonly matrix: boolean;
}

/** An attention ready to be recorded again and again; its scratch buffers are its own. */
export interface AttentionPlan {
  /** The kernels in order. */
  steps(buffers: AttentionBuffers): readonly Step[];
  /** Frees the scratch buffers. */
  destroy(): void;
}

/**
 * Compiles what an attention needs and allocates its scratch buffers.
 *
 * @throws MxattnError (as a rejection) if the device does not take a kernel.
 */
export async function planAttention(
  device: GPUDevice,
  spec: AttentionSpec,
  recipe: Recipe,
  extras: Extras,
  options: PlanOptions,
): Promise<AttentionPlan> {
  const shape = shapeClass(spec, { bias: extras.biasStrides !== null, sinks: extras.sinks });
  const uniform = problemUniform(
    spec,
    packedSizes(spec, channelsOf(shape)),
    extras.biasStrides ?? [0, 0, 0, 0],
    weightCarry(recipe),
  );
  const problem = device.createBuffer({
    label: 'mxattn problem',
    size: uniform.byteLength,
    usage: GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST,
  });
  device.queue.writeBuffer(problem, 0, uniform);
  const context = { device, spec, shape, recipe, options, problem };
  return recipe.queryKey === null ? floatPlan(context) : quantisedPlan(context);
}

interface Context {
  readonly device: GPUDevice;
  readonly spec: AttentionSpec;
  readonly shape: ShapeClass;
  readonly recipe: Recipe;
  readonly options: PlanOptions;
  readonly problem: GPUBuffer;
}

/** Workgroups along [rows of a key/value head, key/value heads, chunks of output channels]. */
function attendGroups({ spec, shape }: Context): [number, number, number] {
  const { batch, heads, kvHeads, queryLength } = spec;
  const rows = (heads / kvHeads) * queryLength;
  return [Math.ceil(rows / ROWS), batch * kvHeads, channelsOf(shape).valueChunks];
}

async function floatPlan(context: Context): Promise<AttentionPlan> {
  const [attend] = await compiled(context.device, [attendF32(context.shape, context.options)]);
  return {
    steps: ({ query, key, value, output, bias, sinks }) => [
      {
        name: 'attend',
        pipeline: attend,
        bindings: bindings(context.problem, query, key, value, output, bias, sinks),
        workgroups: attendGroups(context),
      },
    ],
    destroy: () => context.problem.destroy(),
  };
}

/** Two arrays in one buffer, the second from a multiple of 256 bytes on. */
function halves(buffer: GPUBuffer, boundary: number): [GPUBufferBinding, GPUBufferBinding] {
  return [
    { buffer, size: Math.max(boundary, 256) },
    { buffer, offset: boundary },
  ];
}

/** Quantises to MX blocks, then attends with 8-bit dot products or, where they suit, on matrix units. */
async function quantisedPlan(context: Context): Promise<AttentionPlan> {
  const { device, spec, shape, recipe, options, problem } = context;
  const matrix = options.matrix && suitsMatrix(shape);
  const channels = channelsOf(shape);
  const sizes = packedSizes(spec, channels);
  const { groupRows } = rowGroups(shape);
  const { batch, heads, kvHeads, queryLength } = spec;
  const queryHeads = batch * heads;
  const keyHeads = batch * kvHeads;
  const [quantiseQueries, quantiseKeys, quantise, attend] = await compiled(device, [
    quantiseRows(shape, recipe, false),
    quantiseRows(shape, recipe, true),
    quantiseValues(shape, recipe, matrix),
    attendDot4(shape, options, matrix),
  ]);
  const scratch = new Scratch(device);
  const queries = scratch.allocate('packed queries', sizes.queries);
  const keys = scratch.allocate('packed keys', sizes.keys);
  const values = scratch.allocate('packed values', sizes.values + 256);
  const [valueCodes, valueScales] = halves(values, sizes.valueScales);
  const aligned = matrix
    ? await alignment(context, scratch, { queries, keys, valueCodes, valueScales })
    : null;
  return {
    steps: (buffers) => [
      {
        name: 'quantise queries',
        pipeline: quantiseQueries,
        bindings: bindings(problem, buffers.query, queries),
        workgroups: [Math.ceil(queryLength / groupRows), queryHeads, 1],
      },
      {
        name: 'quantise keys',
        pipeline: quantiseKeys,
        bindings: bindings(problem, buffers.key, keys),
        workgroups: [Math.ceil(sizes.keyRows / groupRows), keyHeads, 1],
      },
      {
        name: 'quantise values',
        pipeline: quantise,
        bindings: bindings(problem, buffers.value, valueCodes, valueScales, aligned?.unsuited),
        workgroups: [Math.ceil(channels.valueChannels / 64), sizes.valueBlocks, keyHeads],
      },
      ...(aligned?.steps(buffers) ?? []),
      {
        name: 'attend',
        pipeline: attend,
        bindings: bindings(
          problem,
          queries,
          keys,
          values,
          buffers.output,
          buffers.bias,
          buffers.sinks,
          aligned?.unsuited,
        ),
        workgroups: attendGroups(context),
      },
    ],
    destroy() {
      problem.destroy();
      scratch.destroy();
    },
  };
}

interface Packed {
  readonly queries: GPUBuffer;
  readonly keys: GPUBuffer;
  readonly valueCodes: GPUBufferBinding;
  readonly valueScales: GPUBufferBinding;
}

/** What matrix units need beyond quantised operands: operands under few scales, and their attention. */
async function alignment(context: Context, scratch: Scratch, packed: Packed) {
  const { device, spec, shape, recipe, problem } = context;
  const { headSize, valueHeadSize } = shape;
  const rows = matrixRows(shape);
  const { keyRows, valueBlocks } = packedSizes(spec, channelsOf(shape));
  const { batch, heads, kvHeads, queryLength } = spec;
  const queryHeads = batch * heads;
  const keyHeads = batch * kvHeads;
  const [alignQueries, alignKeys, topScales, align, attend] = await compiled(device, [
    alignRows(shape, recipe, false),
    alignRows(shape, recipe, true),
    topValueScales(shape, recipe),
    alignValues(shape, recipe),
    attendMatrix(shape),
  ]);
  // Matrices of the last rows reach past the end.
  const queries = scratch.allocate('aligned queries', (queryHeads * queryLength + rows) * headSize);
  const queryScales = scratch.allocate('scales of queries', queryHeads * queryLength * 4);
  const keys = scratch.allocate('aligned keys', keyHeads * keyRows * headSize);
  const keyScales = scratch.allocate('scales of keys', (keyHeads * keyRows * 4) / ALIGNED_ROWS);
  const values = scratch.allocate('aligned values', keyHeads * keyRows * valueHeadSize);
  const units = keyHeads * valueHeadSize * 4;
  const valueScales = scratch.allocate('scales of values', units + Math.ceil(keyHeads / 4) * 16);
  const [unitsOfValues, unsuited] = halves(valueScales, units);
  const steps = ({ output, bias, sinks }: AttentionBuffers): Step[] => [
    {
      name: 'align queries',
      pipeline: alignQueries,
      bindings: bindings(problem, packed.queries, queries, queryScales),
      workgroups: [Math.ceil(queryLength / ALIGNED_ROWS), queryHeads, 1],
    },
    {
      name: 'align keys',
      pipeline: alignKeys,
      bindings: bindings(problem, packed.keys, keys, keyScales, unsuited),
      workgroups: [keyRows / ALIGNED_ROWS, keyHeads, 1],
    },
    {
      name: 'top scales of values',
      pipeline: topScales,
      bindings: bindings(problem, packed.valueScales, unitsOfValues, unsuited),
      workgroups: [Math.ceil(valueHeadSize / 32), keyHeads, 1],
    },
    {
      name: 'align values',
      pipeline: align,
      bindings: bindings(problem, packed.valueCodes, packed.valueScales, unitsOfValues, values),
      workgroups: [Math.ceil(valueHeadSize / 64), valueBlocks, keyHeads],
    },
    {
      name: 'attend on matrix units',
      pipeline: attend,
      bindings: bindings(
        problem,
        queries,
        queryScales,
        keys,
        keyScales,
        values,
        valueScales,
        output,
        bias,
        sinks,
      ),
      workgroups: [Math.ceil(((heads / kvHeads) * queryLength) / rows), keyHeads, 1],
    },
  ];
  return { unsuited, steps };
}
