/// <reference types="@webgpu/types" />
import {
  type AttentionSpec,
  type AttentionTensors,
  additiveBias,
  type Backend,
  broadcastStrides,
  MxattnError,
  type Recipe,
  recipes,
  type ScoreTensor,
} from '@mxattn/core';
import { hasMatrices } from './features.js';
import { LARGEST_HEAD_SIZE } from './kernels.js';
import { multipliesFloats, webgpuRecipes } from './operand-format.js';
import { type PlanOptions, planAttention } from './plan.js';
import { packedSizes } from './problem.js';
import { channelsOf } from './shape-class.js';
import { encode } from './steps.js';

/** Options of {@link webgpuBackend}. */
export interface WebgpuBackendOptions {
  /** Default `webgpu`. */
  readonly name?: string;
  /**
   * Repeat the bodies of the kernels' inner loops, so that their operands become registers: faster on GPUs, slow to compile
   * in software. Default: true.
   */
  readonly unroll?: boolean;
  /**
   * Use subgroup matrices where the device has them and they suit the attention; default true. Blocks of the operands then
   * share scales, and weights are float16.
   */
  readonly matrix?: boolean;
  /** What the device's adapter says of itself, which names its matrix products; default that of the device. */
  readonly adapterInfo?: GPUAdapterInfo;
}

/**
 * The WebGPU kernels as a backend of @mxattn/core, for `registerBackend`, on arrays that are copied to the device and back.
 *
 * @param device needs no feature and no raised limit.
 */
export function webgpuBackend(device: GPUDevice, options: WebgpuBackendOptions = {}): Backend {
  const { name = 'webgpu', unroll = true, matrix = true, adapterInfo = device.adapterInfo } = options;
  const plan: PlanOptions = { unroll, matrix: matrix && hasMatrices(device, adapterInfo) };
  return {
    name,
    priority: 7,
    supports: (spec, recipe) => reasonAgainst(device, spec, recipe) ?? true,
    attention: (tensors, spec, recipe) => run(device, tensors, spec, recipe, plan),
  };
}

/** Largest number of workgroups along an axis on every device. */
const MOST_WORKGROUPS = 65535;

function reasonAgainst(device: GPUDevice, spec: AttentionSpec, recipe: Recipe): string | undefined {
  if (!webgpuRecipes.includes(recipe)) return `does not implement the recipe ${recipe.name}`;
  if (recipe !== recipes.f32 && spec.headSize > LARGEST_HEAD_SIZE) {
    return `quantises head sizes up to ${LARGEST_HEAD_SIZE}, not ${spec.headSize}`;
  }
  if (recipe !== recipes.f32 && [1, 2, 4].includes(spec.headSize)) {
    return `rotates heads of 8 channels or more, not ${spec.headSize}`;
  }
  if (spec.batch * spec.heads > MOST_WORKGROUPS) {
    return `takes up to ${MOST_WORKGROUPS} heads of all sequences together, not ${spec.batch * spec.heads}`;
  }
  const { batch, heads, kvHeads, queryLength, keyLength, headSize, valueHeadSize } = spec;
  const sizes = packedSizes(spec, channelsOf(spec), multipliesFloats(recipe));
  const largest = Math.max(
    batch * heads * queryLength * Math.max(headSize, valueHeadSize) * 4,
    batch * kvHeads * (spec.keyCapacity ?? keyLength) * Math.max(headSize, valueHeadSize) * 4,
    ...(recipe === recipes.f32 ? [] : [sizes.queries, sizes.keys, sizes.values]),
  );
  const limit = Math.min(device.limits.maxStorageBufferBindingSize, device.limits.maxBufferSize);
  if (largest > limit) return `needs buffers of ${largest} bytes; the device was requested with ${limit}`;
  return undefined;
}

async function run(
  device: GPUDevice,
  tensors: AttentionTensors,
  spec: AttentionSpec,
  recipe: Recipe,
  options: PlanOptions,
): Promise<Float32Array> {
  const length = spec.batch * spec.heads * spec.queryLength * spec.valueHeadSize;
  if (length === 0) return new Float32Array(0);
  const bias = usefulBias(additiveBias(tensors, spec), tensors.sinks !== undefined);
  const plan = await planAttention(
    device,
    spec,
    recipe,
    { biasStrides: bias ? broadcastStrides(bias.dims) : null, sinks: tensors.sinks !== undefined },
    options,
  );
  const buffers: GPUBuffer[] = [];
  const buffer = (size: number, usage: number) => {
    const made = device.createBuffer({ size: Math.max(size, 16), usage });
    buffers.push(made);
    return made;
  };
  const upload = (data: Float32Array) => {
    const made = buffer(data.byteLength, GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST);
    device.queue.writeBuffer(made, 0, data.buffer as ArrayBuffer, data.byteOffset, data.byteLength);
    return made;
  };
  try {
    const output = buffer(length * 4, GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC);
    const readable = buffer(length * 4, GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST);
    const steps = plan.steps({
      query: upload(tensors.query),
      key: upload(tensors.key),
      value: upload(tensors.value),
      output,
      ...(bias ? { bias: upload(bias.data) } : {}),
      ...(tensors.sinks ? { sinks: upload(tensors.sinks) } : {}),
    });
    const encoder = device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    encode(device, pass, steps);
    pass.end();
    encoder.copyBufferToBuffer(output, 0, readable, 0, length * 4);
    device.queue.submit([encoder.finish()]);
    await mapped(device, readable);
    return new Float32Array(readable.getMappedRange(0, length * 4).slice(0));
  } finally {
    plan.destroy();
    for (const made of buffers) made.destroy();
  }
}

/** A finite bias that all keys share changes a softmax only against a sink. A large one would cost the scores bits. */
function usefulBias(
  bias: ScoreTensor<Float32Array> | undefined,
  sunk: boolean,
): ScoreTensor<Float32Array> | undefined {
  if (!bias || sunk || broadcastStrides(bias.dims)[3] !== 0) return bias;
  return { ...bias, data: bias.data.map((value) => (Number.isFinite(value) ? 0 : value)) };
}

async function mapped(device: GPUDevice, buffer: GPUBuffer): Promise<void> {
  try {
    await buffer.mapAsync(GPUMapMode.READ);
  } catch {
    const lost = await Promise.race([device.lost, undefined]);
    throw new MxattnError(
      `the WebGPU device ${lost ? `was lost (${lost.message})` : 'failed'}; request a new device and register its backend`,
    );
  }
}
