/// <reference types="@webgpu/types" />
import { MxattnError } from '@mxattn/core';
import { SUBGROUP_MATRIX, SUBGROUPS } from '../webgpu/features.js';

/** Features that kernels of ours or of ONNX Runtime use where they are there. */
const useful: readonly GPUFeatureName[] = [SUBGROUPS, 'shader-f16', 'timestamp-query', SUBGROUP_MATRIX];

/**
 * A device with everything that the adapter offers and attention can use.
 *
 * @throws MxattnError where there is no WebGPU or no adapter.
 */
export async function requestDevice(): Promise<GPUDevice> {
  const gpu = (globalThis as { navigator?: { gpu?: GPU } }).navigator?.gpu;
  if (!gpu) throw new MxattnError('this environment has no WebGPU (navigator.gpu is missing)');
  const adapter = await gpu.requestAdapter({ powerPreference: 'high-performance' });
  if (!adapter) throw new MxattnError('WebGPU gives no adapter: the GPU or its driver is not supported');
  const limits: Record<string, number> = {};
  for (const name in adapter.limits) {
    const value = adapter.limits[name as keyof GPUSupportedLimits];
    // Subgroup sizes and the like are no limits that can be asked for.
    if (typeof value === 'number' && name.startsWith('max')) limits[name] = value;
  }
  const requiredFeatures = useful.filter((feature) => adapter.features.has(feature));
  return adapter.requestDevice({ requiredFeatures, requiredLimits: limits });
}
