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

let requested: Promise<AdapterDevice> | undefined;

/** The device of all sessions that are not given one: requested once, and again when it is lost. */
export function sharedDevice(): Promise<AdapterDevice> {
  requested ??= requestDevice().then((made) => {
    void made.device.lost.then(() => {
      requested = undefined;
    });
    return made;
  });
  requested.catch(() => {
    requested = undefined;
  });
  return requested;
}
