/// <reference types="@webgpu/types" />

/** Feature of Dawn that gives WGSL matrix units, and the one that gives it subgroups. */
export const SUBGROUP_MATRIX = 'chromium-experimental-subgroup-matrix' as GPUFeatureName;
export const SUBGROUPS: GPUFeatureName = 'subgroups';

/** A shape of matrix products that an adapter has (Dawn's GPUSubgroupMatrixConfig). */
export interface MatrixConfig {
  readonly componentType: string;
  readonly resultComponentType: string;
  readonly M: number;
  readonly N: number;
  readonly K: number;
}

/** What attend_matrix.wgsl asks of a device. */
const MATRIX_WORKGROUP_MEMORY = 25 * 1024;
const MATRIX_STORAGE_BUFFERS = 9;
const MATRIX_SUBGROUP = 32;

/** The matrix products of an adapter; empty where it has none. */
export function matrixConfigs(info: GPUAdapterInfo): readonly MatrixConfig[] {
  return [...((info as { subgroupMatrixConfigs?: Iterable<MatrixConfig> }).subgroupMatrixConfigs ?? [])];
}

/**
 * Whether the kernels on 8-bit matrix units run on this device.
 *
 * @param info of the adapter: in Dawn's Node.js package that of the device lacks the matrix products.
 */
export function hasByteMatrices(device: GPUDevice, info: GPUAdapterInfo): boolean {
  const { features, limits } = device;
  const products = matrixConfigs(info).filter(({ M, N, K }) => M === 16 && N === 16 && K === 32);
  const has = (type: string) => products.some(({ componentType }) => componentType === type);
  return (
    features.has(SUBGROUP_MATRIX) &&
    features.has(SUBGROUPS) &&
    has('i8') &&
    has('u8') &&
    info.subgroupMinSize === MATRIX_SUBGROUP &&
    info.subgroupMaxSize === MATRIX_SUBGROUP &&
    limits.maxComputeWorkgroupStorageSize >= MATRIX_WORKGROUP_MEMORY &&
    limits.maxStorageBuffersPerShaderStage >= MATRIX_STORAGE_BUFFERS
  );
}
