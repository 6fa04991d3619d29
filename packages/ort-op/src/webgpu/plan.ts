/// <reference types="@webgpu/types" />
import type { AttentionSpec, Recipe } from '@mxattn/core';
import {
  attendDot4,
  attendF32,
  type Kernel,
  type KernelOptions,
  quantiseRows,
  quantiseValues,
  rowGroups,
} from './kernels.js';
import { pipeline } from './pipelines.js';
import { packedSizes, problemUniform } from './problem.js';
import { channelsOf, type ShapeClass, shapeClass } from './shape-class.js';

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

/** A dispatch whose buffers are known. */
export interface Step {
  readonly name: string;
  readonly pipeline: GPUComputePipeline;
  readonly bindings: readonly GPUBindGroupEntry[];
  readonly workgroups: readonly [number, number, number];
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
  options: KernelOptions,
): Promise<AttentionPlan> {
  const shape = shapeClass(spec, { bias: extras.biasStrides !== null, sinks: extras.sinks });
  const uniform = problemUniform(
    spec,
    packedSizes(spec, channelsOf(shape)),
    extras.biasStrides ?? [0, 0, 0, 0],
  );
  const problem = device.createBuffer({
    label: 'mxattn problem',
    size: uniform.byteLength,
    usage: GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST,
  });
  device.queue.writeBuffer(problem, 0, uniform);
  const context = { device, spec, shape, recipe, options, problem };
  return recipe.queryKey === null ? floatPlan(context) : dot4Plan(context);
}

interface Context {
  readonly device: GPUDevice;
  readonly spec: AttentionSpec;
  readonly shape: ShapeClass;
  readonly recipe: Recipe;
  readonly options: KernelOptions;
  readonly problem: GPUBuffer;
}

/** Workgroups along [rows of a key/value head, key/value heads, chunks of output channels]. */
function attendGroups({ spec, shape }: Context): [number, number, number] {
  const { batch, heads, kvHeads, queryLength } = spec;
  const rows = (heads / kvHeads) * queryLength;
  return [Math.ceil(rows / ROWS), batch * kvHeads, channelsOf(shape).valueChunks];
}

function compiled({ device }: Context, { key, code }: Kernel): Promise<GPUComputePipeline> {
  return pipeline(device, key, code);
}

function bindings(...resources: (GPUBuffer | GPUBufferBinding | undefined)[]): GPUBindGroupEntry[] {
  return resources.flatMap((resource, binding) => {
    if (!resource) return [];
    return [{ binding, resource: 'buffer' in resource ? resource : { buffer: resource } }];
  });
}

async function floatPlan(context: Context): Promise<AttentionPlan> {
  const attend = await compiled(context, attendF32(context.shape, context.options));
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

async function dot4Plan(context: Context): Promise<AttentionPlan> {
  const { device, spec, shape, recipe, options, problem } = context;
  const channels = channelsOf(shape);
  const sizes = packedSizes(spec, channels);
  const { groupRows } = rowGroups(shape);
  const [quantiseQueries, quantiseKeys, quantise, attend] = await Promise.all(
    [
      quantiseRows(shape, recipe, false),
      quantiseRows(shape, recipe, true),
      quantiseValues(shape, recipe),
      attendDot4(shape, recipe, options),
    ].map((kernel) => compiled(context, kernel)),
  );
  const scratch = (label: string, size: number) =>
    device.createBuffer({
      label: `mxattn ${label}`,
      size: Math.max(size, 256),
      usage: GPUBufferUsage.STORAGE,
    });
  const queries = scratch('packed queries', sizes.queries);
  const keys = scratch('packed keys', sizes.keys);
  const values = scratch('packed values', sizes.values);
  const { batch, heads, kvHeads, queryLength } = spec;
  return {
    steps: ({ query, key, value, output, bias, sinks }) => [
      {
        name: 'quantise queries',
        pipeline: quantiseQueries!,
        bindings: bindings(problem, query, queries),
        workgroups: [Math.ceil(queryLength / groupRows), batch * heads, 1],
      },
      {
        name: 'quantise keys',
        pipeline: quantiseKeys!,
        bindings: bindings(problem, key, keys),
        workgroups: [Math.ceil(sizes.keyRows / groupRows), batch * kvHeads, 1],
      },
      {
        name: 'quantise values',
        pipeline: quantise!,
        bindings: bindings(
          problem,
          value,
          { buffer: values, size: Math.max(sizes.valueScales, 256) },
          ...(sizes.valueScales ? [{ buffer: values, offset: sizes.valueScales }] : [values]),
        ),
        workgroups: [Math.ceil(channels.valueChannels / 64), sizes.valueBlocks, batch * kvHeads],
      },
      {
        name: 'attend',
        pipeline: attend!,
        bindings: bindings(problem, queries, keys, values, output, bias, sinks),
        workgroups: attendGroups(context),
      },
    ],
    destroy() {
      for (const buffer of [problem, queries, keys, values]) buffer.destroy();
    },
  };
}

/** Records the dispatches of a plan. */
export function encode(device: GPUDevice, pass: GPUComputePassEncoder, steps: readonly Step[]): void {
  for (const { pipeline: kernel, bindings: entries, workgroups } of steps) {
    if (workgroups.includes(0)) continue;
    pass.setPipeline(kernel);
    pass.setBindGroup(0, device.createBindGroup({ layout: kernel.getBindGroupLayout(0), entries }));
    pass.dispatchWorkgroups(...workgroups);
  }
}
