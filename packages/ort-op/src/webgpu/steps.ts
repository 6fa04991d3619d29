/// <reference types="@webgpu/types" />
import type { PassRecorder } from './inplace/index.js';
import type { Kernel } from './kernels.js';
import { pipeline } from './pipelines.js';

/** A dispatch whose buffers are known. */
export interface Step {
  readonly name: string;
  readonly pipeline: GPUComputePipeline;
  readonly bindings: readonly GPUBindGroupEntry[];
  readonly workgroups: readonly [number, number, number];
}

export function bindings(...resources: (GPUBuffer | GPUBufferBinding | undefined)[]): GPUBindGroupEntry[] {
  return resources.flatMap((resource, binding) => {
    if (!resource) return [];
    return [{ binding, resource: 'buffer' in resource ? resource : { buffer: resource } }];
  });
}

export function compiled<const T extends readonly Kernel[]>(
  device: GPUDevice,
  kernels: T,
): Promise<{ -readonly [K in keyof T]: GPUComputePipeline }> {
  const pipelines = kernels.map(({ key, code }) => pipeline(device, key, code));
  return Promise.all(pipelines) as Promise<{ -readonly [K in keyof T]: GPUComputePipeline }>;
}

/** Scratch buffers of a plan, freed together. */
export class Scratch {
  private readonly buffers: GPUBuffer[] = [];

  constructor(private readonly device: GPUDevice) {}

  /** @param usage beside storage. */
  allocate(label: string, size: number, usage: GPUBufferUsageFlags = 0): GPUBuffer {
    const buffer = this.device.createBuffer({
      label: `mxattn ${label}`,
      size: Math.max(size, 256),
      usage: GPUBufferUsage.STORAGE | usage,
    });
    this.buffers.push(buffer);
    return buffer;
  }

  destroy(): void {
    for (const buffer of this.buffers) buffer.destroy();
  }
}

const groups = new WeakMap<Step['bindings'], GPUBindGroup>();

/** The bind group of a step, made once for each list of bindings. */
function bindGroup(device: GPUDevice, { pipeline: kernel, bindings: entries }: Step): GPUBindGroup {
  let group = groups.get(entries);
  if (!group) {
    group = device.createBindGroup({ layout: kernel.getBindGroupLayout(0), entries });
    groups.set(entries, group);
  }
  return group;
}

/** Records dispatches. */
export function encode(device: GPUDevice, pass: PassRecorder, steps: readonly Step[]): void {
  for (const step of steps) {
    if (step.workgroups.includes(0)) continue;
    pass.setPipeline(step.pipeline);
    pass.setBindGroup(0, bindGroup(device, step));
    pass.dispatchWorkgroups(...step.workgroups);
  }
}
