/// <reference types="@webgpu/types" />
import { broadcastStrides, MxattnError, type PrecisionName, precision as recipeOf } from '@mxattn/core';
import type * as Ort from 'onnxruntime-common';
import type { FusedValues } from '../../rewrite/index.js';
import { hasMatrices, isSoftware } from '../../webgpu/features.js';
import { type AttentionKernels, type AttentionPlan, compileAttention } from '../../webgpu/plan.js';
import { type ElementType, type ShapeClass, shapeClass } from '../../webgpu/shape-class.js';
import { encode } from '../../webgpu/steps.js';
import { planRoom } from '../room.js';
import { type Operands, type SplitAttention, specOf } from './attention.js';

/** Plans that are kept; the least recently used goes first. */
const MOST_PLANS = 16;

/** Attention on this package's WebGPU kernels, on ONNX Runtime's device: its queue keeps the order of our work and its own. */
export class GpuSplitAttention implements SplitAttention {
  readonly location = 'gpu-buffer';
  private readonly kernels = new Map<string, Promise<AttentionKernels>>();
  /** One plan serves all layers in turn. */
  private readonly plans = new Map<string, AttentionPlan>();
  /** Outputs that are free again, by their size. */
  private readonly outputs = new Map<number, GPUBuffer[]>();
  private readonly options;

  constructor(
    private readonly ort: typeof Ort,
    private readonly device: GPUDevice,
    adapterInfo: GPUAdapterInfo,
  ) {
    this.options = { unroll: !isSoftware(adapterInfo), matrix: hasMatrices(device, adapterInfo) };
  }

  async compute(values: FusedValues, operands: Operands, precision: PrecisionName): Promise<Ort.Tensor> {
    const { device } = this;
    const { query, key, value, bias } = operands;
    const elementType = query.type as ElementType;
    const spec = specOf(values, operands);
    const extras = { biasStrides: bias ? broadcastStrides(bias.dims) : null, sinks: false };
    const shape = shapeClass(spec, { elementType, bias: bias !== undefined, sinks: false });
    const kind = JSON.stringify([shape, precision]);
    const kernels = await this.compiled(kind, shape, precision);
    const { capacity, key: sizes } = planRoom(spec);
    const place = `${kind},${sizes}`;
    let plan = this.plans.get(place);
    if (plan) plan.update(spec, extras);
    else plan = kernels.plan(spec, extras, undefined, capacity);
    this.keep(place, plan);

    const count = spec.batch * spec.heads * spec.queryLength * spec.valueHeadSize;
    const bytes = count * (elementType === 'float16' ? 2 : 4);
    const output = this.output(Math.max(16, Math.ceil(bytes / 16) * 16));
    const uploaded: GPUBuffer[] = [];
    const buffers = {
      query: this.bufferOf(query, uploaded),
      key: this.bufferOf(key, uploaded),
      value: this.bufferOf(value, uploaded),
      output,
      ...(bias ? { bias: this.bufferOf(bias, uploaded) } : {}),
    };
    const encoder = device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    encode(device, pass, plan.steps(buffers));
    pass.end();
    device.queue.submit([encoder.finish()]);
    for (const buffer of uploaded) buffer.destroy();
    return this.ort.Tensor.fromGpuBuffer(output, {
      dataType: elementType,
      dims: [spec.batch, spec.heads, spec.queryLength, spec.valueHeadSize],
      dispose: () => this.outputs.get(output.size)!.push(output),
      download: async () => {
        throw new MxattnError(`the output of attention ${values.layer} lies between segments of the model`);
      },
    });
  }

  release(): void {
    for (const plan of this.plans.values()) plan.destroy();
    for (const buffer of [...this.outputs.values()].flat()) buffer.destroy();
    this.plans.clear();
    this.outputs.clear();
  }

  private compiled(kind: string, shape: ShapeClass, precision: PrecisionName): Promise<AttentionKernels> {
    let kernels = this.kernels.get(kind);
    if (!kernels) {
      kernels = compileAttention(this.device, shape, recipeOf(precision), this.options);
      this.kernels.set(kind, kernels);
    }
    return kernels;
  }

  /** Of a tensor that the caller wants in CPU memory, as it is also a result, a copy that is added to `uploaded`. */
  private bufferOf(tensor: Ort.Tensor, uploaded: GPUBuffer[]): GPUBuffer {
    if (tensor.location === 'gpu-buffer') return tensor.gpuBuffer as GPUBuffer;
    const { buffer, byteOffset, byteLength } = tensor.data as Float32Array<ArrayBuffer>;
    // Copies are of multiples of 4 bytes.
    const padded = new Uint8Array(Math.max(16, Math.ceil(byteLength / 4) * 4));
    padded.set(new Uint8Array(buffer, byteOffset, byteLength));
    const copy = this.device.createBuffer({
      size: padded.byteLength,
      usage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST,
    });
    this.device.queue.writeBuffer(copy, 0, padded);
    uploaded.push(copy);
    return copy;
  }

  private keep(place: string, plan: AttentionPlan): void {
    this.plans.delete(place);
    this.plans.set(place, plan);
    if (this.plans.size <= MOST_PLANS) return;
    const [oldest] = this.plans.keys();
    this.plans.get(oldest!)!.destroy();
    this.plans.delete(oldest!);
  }

  private output(size: number): GPUBuffer {
    const free = this.outputs.get(size) ?? [];
    this.outputs.set(size, free);
    return (
      free.pop() ??
      this.device.createBuffer({
        label: 'mxattn output',
        size,
        usage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST,
      })
    );
  }
}
