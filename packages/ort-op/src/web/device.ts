/// <reference types="@webgpu/types" />
import { MxattnError } from '@mxattn/core';
import { requestKernelDevice } from '../webgpu/request.js';

/** A device and what its adapter says of itself. */
export interface AdapterDevice {
  readonly device: GPUDevice;
  readonly adapterInfo: GPUAdapterInfo;
}

/**
 * A device with everything that the adapter offers and attention can use.
 *
 * @throws MxattnError where there is no WebGPU or no adapter.
 */
export async function requestDevice(): Promise<AdapterDevice> {
  const { gpu } = (globalThis as { navigator?: { gpu?: GPU } }).navigator ?? {};
  if (!gpu) throw new MxattnError('this environment has no WebGPU (navigator.gpu is missing)');
  const adapter = await gpu.requestAdapter({ powerPreference: 'high-performance' });
  if (!adapter) throw new MxattnError('WebGPU gives no adapter: the GPU or its driver is not supported');
  return { device: await requestKernelDevice(adapter), adapterInfo: adapter.info };
}
