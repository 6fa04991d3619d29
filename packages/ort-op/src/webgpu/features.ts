/// <reference types="@webgpu/types" />

/** Feature of Dawn that gives WGSL matrix units, and the ones that give it subgroups and float16. */
export const SUBGROUP_MATRIX = 'chromium-experimental-subgroup-matrix' as GPUFeatureName;
export const SUBGROUPS: GPUFeatureName = 'subgroups';
export const F16: GPUFeatureName = 'shader-f16';

/** A shape of matrix products that an adapter has (Dawn's GPUSubgroupMatrixConfig). */
export interface MatrixConfig {
  readonly componentType: string;
  readonly resultComponentType: string;
  readonly M: number;
  readonly N: number;
  readonly K: number;
}

/** What attend_matrix.wgsl asks of a device. */
const MATRIX_WORKGROUP_MEMORY = 48 * 1024;
const MATRIX_STORAGE_BUFFERS = 9;
const MATRIX_SUBGROUP = 32;

/** The matrix products of an adapter; empty where it has none. */
export function matrixConfigs(info: GPUAdapterInfo): readonly MatrixConfig[] {
  return [...((info as { subgroupMatrixConfigs?: Iterable<MatrixConfig> }).subgroupMatrixConfigs ?? [])];
}

/**
 * Whether the kernels on matrix units run on this device.
 *
 * @param info of the adapter: in Dawn's Node.js package that of the device lacks the matrix products.
 */
export function hasMatrices(device: GPUDevice, info: GPUAdapterInfo): boolean {
  const { features, limits } = device;
  const has = (type: string, result: string, depth: number) =>
    matrixConfigs(info).some(
      ({ componentType, resultComponentType, M, N, K }) =>
        componentType === type && resultComponentType === result && M === 16 && N === 16 && K === depth,
    );
  return (
    [SUBGROUP_MATRIX, SUBGROUPS, F16].every((feature) => features.has(feature)) &&
    has('i8', 'i32', 32) &&
    has('f16', 'f32', 16) &&
    info.subgroupMinSize === MATRIX_SUBGROUP &&
    info.subgroupMaxSize === MATRIX_SUBGROUP &&
    limits.maxComputeWorkgroupStorageSize >= MATRIX_WORKGROUP_MEMORY &&
    limits.maxStorageBuffersPerShaderStage >= MATRIX_STORAGE_BUFFERS
  );
}

/** Whether an adapter is a processor: there, code that is repeated for registers only takes long to compile. */
export function isSoftware({
  architecture,
  description,
  device,
  isFallbackAdapter,
}: GPUAdapterInfo): boolean {
  return (
    isFallbackAdapter ||
    /swiftshader|llvmpipe|lavapipe|basic render/i.test(`${architecture} ${description} ${device}`)
  );
}
