/// <reference types="@webgpu/types" />
import { MxattnError } from '@mxattn/core';

const caches = new WeakMap<GPUDevice, Map<string, Promise<GPUComputePipeline>>>();

/**
 * The pipeline of a kernel, compiled once for a device.
 *
 * @param key what the code depends on.
 * @param code is not asked for when the pipeline is there.
 * @throws MxattnError (as a rejection) with the compiler's message if the device does not take the kernel.
 */
export function pipeline(device: GPUDevice, key: string, code: () => string): Promise<GPUComputePipeline> {
  let cache = caches.get(device);
  if (!cache) {
    cache = new Map();
    caches.set(device, cache);
  }
  let known = cache.get(key);
  if (!known) {
    known = compile(device, key, code());
    cache.set(key, known);
    // A failure, such as a lost device, is not remembered.
    known.catch(() => cache.delete(key));
  }
  return known;
}

async function compile(device: GPUDevice, label: string, code: string): Promise<GPUComputePipeline> {
  const module = device.createShaderModule({ label, code });
  try {
    return await device.createComputePipelineAsync({
      label,
      layout: 'auto',
      compute: { module, entryPoint: 'main' },
    });
  } catch (error) {
    const { messages } = await module.getCompilationInfo();
    const first = messages.find(({ type }) => type === 'error');
    const reason = first ? `line ${first.lineNum}: ${first.message}` : (error as Error).message;
    throw new MxattnError(`the GPU does not take the kernel ${label}: ${reason}`);
  }
}
