/// <reference types="@webgpu/types" />
import {
  ALIGNED_ROWS,
  attendE4m3,
  attendMatrix,
  halveRows,
  halveValues,
  MATRIX_ROWS,
  quantiseRows,
  quantiseValues,
  rowGroups,
  topValueScales,
} from './kernels.js';
import type { AttentionBuffers, AttentionPlan } from './plan.js';
import { attendGroups, type Context, halves, type KernelContext, type Planner } from './planner.js';
import { packedSizes } from './problem.js';
import { channelsOf, suitsMatrix } from './shape-class.js';
import { bindings, compiled, Scratch, type Step } from './steps.js';

/** Bytes of a quantised number, and of one for matrix units. */
const FLOAT = 4;
const HALF = 2;

/** Quantises to E4M3 blocks, kept as float32, then attends in float32 or, where they suit, on float16 matrix units. */
export async function e4m3Kernels(kernels: KernelContext): Promise<Planner> {
  const { shape, recipe, options } = kernels;
  const matrix = options.matrix && suitsMatrix(shape);
  const compiling = compiled(kernels.device, [
    quantiseRows(shape, recipe, false),
    quantiseRows(shape, recipe, true),
    quantiseValues(shape, recipe, matrix),
    attendE4m3(shape, options, matrix),
  ]);
  const halving = matrix ? await halvingKernels(kernels) : null;
  const pipelines = await compiling;
  return (context) => quantisedPlan(context, pipelines, halving);
}

function quantisedPlan(
  context: Context,
  [quantiseQueries, quantiseKeys, quantise, attend]: readonly [
    GPUComputePipeline,
    GPUComputePipeline,
    GPUComputePipeline,
    GPUComputePipeline,
  ],
  halving: Halving | null,
): Omit<AttentionPlan, 'update'> {
  const { device, capacity, shape, problem } = context;
  const channels = channelsOf(shape);
  const { groupRows } = rowGroups(shape);
  const { batch, heads, kvHeads, queryLength } = capacity;
  const { keyRows, valueBlocks } = packedSizes(capacity, channels);
  const used = () => packedSizes(context.spec, channels);
  const headChannels = channels.headBlocks * 32;
  const scratch = new Scratch(device);
  const queries = scratch.allocate('quantised queries', batch * heads * queryLength * headChannels * FLOAT);
  const keys = scratch.allocate('quantised keys', batch * kvHeads * keyRows * headChannels * FLOAT);
  const lines = batch * kvHeads * channels.valueChannels;
  const values = scratch.allocate('quantised values', lines * keyRows * FLOAT);
  const scales = scratch.allocate('scales of values', lines * valueBlocks * FLOAT);
  const halved = halving?.(context, scratch, { queries, keys, values, scales });
  return {
    steps: (buffers) => [
      {
        name: 'quantise queries',
        pipeline: quantiseQueries,
        bindings: bindings(problem, buffers.query, queries),
        workgroups: [Math.ceil(context.spec.queryLength / groupRows), batch * heads, 1],
      },
      {
        name: 'quantise keys',
        pipeline: quantiseKeys,
        bindings: bindings(problem, buffers.key, keys),
        workgroups: [Math.ceil(used().keyRows / groupRows), batch * kvHeads, 1],
      },
      {
        name: 'quantise values',
        pipeline: quantise,
        bindings: bindings(problem, buffers.value, values, scales, halved?.unsuited),
        workgroups: [Math.ceil(channels.valueChannels / 64), used().valueBlocks, batch * kvHeads],
      },
      ...(halved?.steps(buffers) ?? []),
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
          halved?.unsuited,
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

type Halving = (
  context: Context,
  scratch: Scratch,
  quantised: Readonly<Record<'queries' | 'keys' | 'values' | 'scales', GPUBuffer>>,
) => { unsuited: GPUBufferBinding; steps: (buffers: AttentionBuffers) => Step[] };

/** What matrix units need beyond quantised operands: float16 under few scales, and their attention. */
async function halvingKernels(kernels: KernelContext): Promise<Halving> {
  const { shape, recipe } = kernels;
  const [halveQueries, halveKeys, topScales, halve, attend] = await compiled(kernels.device, [
    halveRows(shape, false),
    halveRows(shape, true),
    topValueScales(shape, recipe),
    halveValues(shape),
    attendMatrix(shape, true),
  ]);
  return (context, scratch, quantised) => {
    const { capacity, problem } = context;
    const { headSize, valueHeadSize } = shape;
    const { batch, heads, kvHeads, queryLength } = capacity;
    const { keyRows } = packedSizes(capacity, channelsOf(shape));
    const used = () => packedSizes(context.spec, channelsOf(shape));
    const queryRows = batch * heads * queryLength;
    const keyHeads = batch * kvHeads;
    // Matrices of the last rows reach past the end.
    const queries = scratch.allocate('halved queries', (queryRows + MATRIX_ROWS) * headSize * HALF);
    const queryScales = scratch.allocate('scales of queries', queryRows * FLOAT);
    const keys = scratch.allocate('halved keys', keyHeads * keyRows * headSize * HALF);
    const keyScales = scratch.allocate('scales of keys', (keyHeads * keyRows * FLOAT) / ALIGNED_ROWS);
    const values = scratch.allocate('halved values', keyHeads * keyRows * valueHeadSize * HALF);
    const units = keyHeads * valueHeadSize * FLOAT;
    const valueScales = scratch.allocate('top scales of values', units + Math.ceil(keyHeads / 4) * 16);
    const [unitsOfValues, unsuited] = halves(valueScales, units);
    const steps = ({ output, bias, sinks }: AttentionBuffers): Step[] => [
      {
        name: 'halve queries',
        pipeline: halveQueries,
        bindings: bindings(problem, quantised.queries, queries, queryScales),
        workgroups: [Math.ceil(context.spec.queryLength / ALIGNED_ROWS), batch * heads, 1],
      },
      {
        name: 'halve keys',
        pipeline: halveKeys,
        bindings: bindings(problem, quantised.keys, keys, keyScales, unsuited),
        workgroups: [used().keyRows / ALIGNED_ROWS, keyHeads, 1],
      },
      {
        name: 'top scales of values',
        pipeline: topScales,
        bindings: bindings(problem, quantised.scales, unitsOfValues, unsuited),
        workgroups: [Math.ceil(valueHeadSize / 32), keyHeads, 1],
      },
      {
        name: 'halve values',
        pipeline: halve,
        bindings: bindings(problem, quantised.values, unitsOfValues, values),
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
  };
}
