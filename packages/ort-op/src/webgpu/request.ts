/// <reference types="@webgpu/types" />
import { F16, SUBGROUP_MATRIX, SUBGROUPS } from './features.js';

/** Features that kernels or measurements use where an adapter has them. */
const WANTED: readonly GPUFeatureName[] = [SUBGROUP_MATRIX, SUBGROUPS, F16, 'timestamp-query'];

/** Limits that are raised to what the adapter has: large operands, and the memory of the kernels on matrix units. */
const LIMITS = [
  'maxBufferSize',
  'maxStorageBufferBindingSize',
  'maxStorageBuffersPerShaderStage',
  'maxComputeWorkgroupStorageSize',
  'maxComputeInvocationsPerWorkgroup',
  'maxComputeWorkgroupSizeX',
] as const;

/** A device with every feature and limit that the kernels can use, or nothing they could not do without. */
export function requestKernelDevice(adapter: GPUAdapter): Promise<GPUDevice> {
  return adapter.requestDevice({
    requiredFeatures: WANTED.filter((feature) => adapter.features.has(feature)),
    requiredLimits: Object.fromEntries(LIMITS.map((limit) => [limit, adapter.limits[limit]])),
  });
}
