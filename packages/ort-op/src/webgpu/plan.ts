/// <reference types="@webgpu/types" />
import type { AttentionSpec, Recipe } from '@mxattn/core';
import {
  ALIGNED_ROWS,
  alignedBytes,
  alignRows,
  alignValues,
  attendF32,
  attendMatrix,
  attendQuantised,
  type KernelOptions,
  MATRIX_ROWS,
  quantiseRows,
  quantiseValues,
  rowGroups,
  topValueScales,
} from './kernels.js';
import { multipliesFloats, weightCarry } from './operand-format.js';
import { type OperandLayouts, PROBLEM_BYTES, packedSizes, problemUniform } from './problem.js';
import { channelsOf, type ElementType, type ShapeClass, shapeClass, suitsMatrix } from './shape-class.js';
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

/** What the tensors of an attention are beside its spec, without their data. */
export interface Extras {
  /** Of all of them, default float32. Buffers of float16 have whole words of 4 bytes. */
  readonly elementType?: ElementType;
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
  /**
   * Makes it another attention of the same shape class, whose lengths are at most those it was allocated for. What was
   * recorded before must be submitted.
   */
  update(spec: AttentionSpec, extras: Extras, layouts?: OperandLayouts): void;
  /** The kernels in order. */
  steps(buffers: AttentionBuffers): readonly Step[];
  /** Frees the scratch buffers. */
  destroy(): void;
}

/** Compiled kernels of a shape class and a recipe. */
export interface AttentionKernels {
  /**
   * Allocates the scratch buffers of an attention of that class.
   *
   * @param capacity With the longest lengths that it shall be updated to.
   */
  plan(
    spec: AttentionSpec,
    extras: Extras,
    layouts?: OperandLayouts,
    capacity?: AttentionSpec,
  ): AttentionPlan;
}

/**
 * Compiles what attentions of a shape class need.
 *
 * @throws MxattnError (as a rejection) if the device does not take a kernel.
 */
export async function compileAttention(
  device: GPUDevice,
  shape: ShapeClass,
  recipe: Recipe,
  options: PlanOptions,
): Promise<AttentionKernels> {
  const context = { device, shape, recipe, options };
  const plan = await (recipe.queryKey === null ? floatKernels(context) : quantisedKernels(context));
  return {
    plan(spec, extras, layouts, capacity = spec) {
      const problem = device.createBuffer({
        label: 'mxattn problem',
        size: PROBLEM_BYTES,
        usage: GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST,
      });
      const current = { ...context, spec, capacity, problem };
      const update: AttentionPlan['update'] = (next, { biasStrides }, layouts) => {
        current.spec = next;
        const sizes = packedSizes(capacity, channelsOf(shape), multipliesFloats(recipe));
        const uniform = problemUniform(
          next,
          sizes,
          biasStrides ?? [0, 0, 0, 0],
          weightCarry(recipe),
          layouts,
        );
        device.queue.writeBuffer(problem, 0, uniform);
      };
      update(spec, extras, layouts);
      return { update, ...plan(current) };
    },
  };
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
  const shape = shapeClass(spec, { ...extras, bias: extras.biasStrides !== null });
  return (await compileAttention(device, shape, recipe, options)).plan(spec, extras);
}

/** What kernels are compiled for. */
interface KernelContext {
  readonly device: GPUDevice;
  readonly shape: ShapeClass;
  readonly recipe: Recipe;
  readonly options: PlanOptions;
}

interface Context extends KernelContext {
  /** What scratch buffers have room for. */
  readonly capacity: AttentionSpec;
  /** The attention to record; changes with an update. */
  spec: AttentionSpec;
  readonly problem: GPUBuffer;
}

type Planner = (context: Context) => Omit<AttentionPlan, 'update'>;

/** Workgroups along [rows of a key/value head, key/value heads, chunks of output channels]. */
function attendGroups({ spec, shape }: Context): [number, number, number] {
  const { batch, heads, kvHeads, queryLength } = spec;
  const rows = (heads / kvHeads) * queryLength;
  return [Math.ceil(rows / ROWS), batch * kvHeads, channelsOf(shape).valueChunks];
}

async function floatKernels(kernels: KernelContext): Promise<Planner> {
  const [attend] = await compiled(kernels.device, [attendF32(kernels.shape, kernels.options)]);
  return (context) => ({
    steps: ({ query, key, value, output, bias, sinks }) => [
      {
        name: 'attend',
        pipeline: attend,
        bindings: bindings(context.problem, query, key, value, output, bias, sinks),
        workgroups: attendGroups(context),
      },
    ],
    destroy: () => context.problem.destroy(),
  });
}

/** Two arrays in one buffer, the second from a multiple of 256 bytes on. */
function halves(buffer: GPUBuffer, boundary: number): [GPUBufferBinding, GPUBufferBinding] {
  return [
    { buffer, size: Math.max(boundary, 256) },
    { buffer, offset: boundary },
  ];
}

/** Quantises to MX blocks, then attends with 8-bit dot products, with floats or, where they suit, on matrix units. */
async function quantisedKernels(kernels: KernelContext): Promise<Planner> {
  const { shape, recipe, options } = kernels;
  const matrix = options.matrix && suitsMatrix(shape);
  const compiling = compiled(kernels.device, [
    quantiseRows(shape, recipe, false),
    quantiseRows(shape, recipe, true),
    quantiseValues(shape, recipe, matrix),
    attendQuantised(shape, recipe, options, matrix),
  ]);
  const aligning = matrix ? await alignmentKernels(kernels) : null;
  const pipelines = await compiling;
  return (context) => quantisedPlan(context, pipelines, aligning);
}

function quantisedPlan(
  context: Context,
  [quantiseQueries, quantiseKeys, quantise, attend]: readonly [
    GPUComputePipeline,
    GPUComputePipeline,
    GPUComputePipeline,
    GPUComputePipeline,
  ],
  aligning: Alignment | null,
): Omit<AttentionPlan, 'update'> {
  const { device, capacity, shape, recipe, problem } = context;
  const floats = multipliesFloats(recipe);
  const channels = channelsOf(shape);
  const sizes = packedSizes(capacity, channels, floats);
  const { groupRows } = rowGroups(shape);
  const queryHeads = capacity.batch * capacity.heads;
  const keyHeads = capacity.batch * capacity.kvHeads;
  const used = () => packedSizes(context.spec, channels, floats);
  const scratch = new Scratch(device);
  const queries = scratch.allocate('packed queries', sizes.queries);
  const keys = scratch.allocate('packed keys', sizes.keys);
  const values = scratch.allocate('packed values', sizes.values + 256);
  const [valueCodes, valueScales] = halves(values, sizes.valueScales);
  const aligned = aligning?.(context, scratch, { queries, keys, valueCodes, valueScales });
  return {
    steps: (buffers) => [
      {
        name: 'quantise queries',
        pipeline: quantiseQueries,
        bindings: bindings(problem, buffers.query, queries),
        workgroups: [Math.ceil(context.spec.queryLength / groupRows), queryHeads, 1],
      },
      {
        name: 'quantise keys',
        pipeline: quantiseKeys,
        bindings: bindings(problem, buffers.key, keys),
        workgroups: [Math.ceil(used().keyRows / groupRows), keyHeads, 1],
      },
      {
        name: 'quantise values',
        pipeline: quantise,
        bindings: bindings(problem, buffers.value, valueCodes, valueScales, aligned?.unsuited),
        workgroups: [Math.ceil(channels.valueChannels / 64), used().valueBlocks, keyHeads],
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

type Alignment = (
  context: Context,
  scratch: Scratch,
  packed: Packed,
) => { unsuited: GPUBufferBinding; steps: (buffers: AttentionBuffers) => Step[] };

/** What matrix units need beyond quantised operands: operands under few scales, as integers or float16, and their attention. */
async function alignmentKernels(kernels: KernelContext): Promise<Alignment> {
  const { shape, recipe } = kernels;
  const pipelines = await compiled(kernels.device, [
    alignRows(shape, recipe, false),
    alignRows(shape, recipe, true),
    topValueScales(shape, recipe),
    alignValues(shape, recipe),
    attendMatrix(shape, recipe),
  ]);
  return (context, scratch, packed) => alignment(context, scratch, packed, pipelines);
}

function alignment(
  context: Context,
  scratch: Scratch,
  packed: Packed,
  [alignQueries, alignKeys, topScales, align, attend]: readonly [
    GPUComputePipeline,
    GPUComputePipeline,
    GPUComputePipeline,
    GPUComputePipeline,
    GPUComputePipeline,
  ],
) {
  const { capacity, shape, recipe, problem } = context;
  const floats = multipliesFloats(recipe);
  const bytes = alignedBytes(recipe);
  const { headSize, valueHeadSize } = shape;
  const { keyRows } = packedSizes(capacity, channelsOf(shape), floats);
  const { batch, heads, kvHeads, queryLength } = capacity;
  const used = () => packedSizes(context.spec, channelsOf(shape), floats);
  const queryHeads = batch * heads;
  const keyHeads = batch * kvHeads;
  // Matrices of the last rows reach past the end.
  const queries = scratch.allocate(
    'aligned queries',
    (queryHeads * queryLength + MATRIX_ROWS) * headSize * bytes,
  );
  const queryScales = scratch.allocate('scales of queries', queryHeads * queryLength * 4);
  const keys = scratch.allocate('aligned keys', keyHeads * keyRows * headSize * bytes);
  const keyScales = scratch.allocate('scales of keys', (keyHeads * keyRows * 4) / ALIGNED_ROWS);
  const values = scratch.allocate('aligned values', keyHeads * keyRows * valueHeadSize * bytes);
  const units = keyHeads * valueHeadSize * 4;
  const valueScales = scratch.allocate('scales of values', units + Math.ceil(keyHeads / 4) * 16);
  const [unitsOfValues, unsuited] = halves(valueScales, units);
  const steps = ({ output, bias, sinks }: AttentionBuffers): Step[] => [
    {
      name: 'align queries',
      pipeline: alignQueries,
      bindings: bindings(problem, packed.queries, queries, queryScales),
      workgroups: [Math.ceil(context.spec.queryLength / ALIGNED_ROWS), queryHeads, 1],
    },
    {
      name: 'align keys',
      pipeline: alignKeys,
      bindings: bindings(problem, packed.keys, keys, keyScales, unsuited),
      workgroups: [used().keyRows / ALIGNED_ROWS, keyHeads, 1],
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
      bindings: bindings(
        problem,
        packed.valueCodes,
        // Floats have theirs in them.
        floats ? undefined : packed.valueScales,
        unitsOfValues,
        values,
      ),
      workgroups: [Math.ceil(valueHeadSize / 64), used().valueBlocks, keyHeads],
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
      workgroups: [Math.ceil(((heads / kvHeads) * context.spec.queryLength) / MATRIX_ROWS), keyHeads, 1],
    },
  ];
  return { unsuited, steps };
}
