/// <reference types="@webgpu/types" />
import { type Backend, MxattnError } from '@mxattn/core';
import { webgpuBackend } from '../webgpu/backend.js';
import { describeAdapter, type GpuDescription } from '../webgpu/describe.js';
import { requestKernelDevice } from '../webgpu/request.js';
import { type DawnOptions, openDawn } from './dawn.js';

export type { GpuDescription } from '../webgpu/describe.js';
export { type DawnOptions, openDawn } from './dawn.js';
export { type WebRuntime, type WebSession, webRuntime } from './runtime.js';

/** A device with its adapter. */
export interface NodeGpu {
  readonly gpu: GPU;
  readonly adapter: GPUAdapter;
  readonly device: GPUDevice;
}

/**
 * Opens this machine's GPU through Dawn, with every feature that the kernels use.
 *
 * @throws MxattnError (as a rejection) if the package `webgpu` or an adapter is missing.
 */
export async function openGpu(options: DawnOptions = {}): Promise<NodeGpu> {
  const gpu = await openDawn(options);
  const adapter = await gpu.requestAdapter({ powerPreference: 'high-performance' });
  if (!adapter) {
    throw new MxattnError(
      'WebGPU finds no adapter: no GPU, or no driver (Vulkan, Metal or Direct3D 12) for it',
    );
  }
  return { gpu, adapter, device: await requestKernelDevice(adapter) };
}

/** The backend of {@link webgpuBackend} on this machine's GPU. */
export async function nodeGpuBackend(options: DawnOptions = {}): Promise<Backend> {
  const { adapter, device } = await openGpu(options);
  return webgpuBackend(device, { adapterInfo: adapter.info });
}

/** What this machine's GPU can do for the kernels, or the reason why it cannot. */
export async function describeGpu(options: DawnOptions = {}): Promise<GpuDescription | string> {
  let gpu: GPU;
  try {
    gpu = await openDawn(options);
  } catch (error) {
    if (error instanceof MxattnError) return error.message;
    throw error;
  }
  return describeAdapter(gpu);
}
