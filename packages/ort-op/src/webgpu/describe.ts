/// <reference types="@webgpu/types" />
import { hasMatrices, isSoftware, matrixConfigs } from './features.js';
import { requestKernelDevice } from './request.js';

/** What this machine's GPU can do for the kernels. */
export interface GpuDescription {
  /** Of the adapter. */
  readonly name: string;
  /** Whether it is a processor. */
  readonly software: boolean;
  readonly features: readonly string[];
  readonly limits: Readonly<Record<string, number>>;
  /** Shapes of matrix products, as in `i8 16x16x32 -> i32`. */
  readonly matrixProducts: readonly string[];
  /** Which kernels attend, by precision; head sizes in which they differ. */
  readonly kernels: Readonly<Record<string, string>>;
}

const LIMITS = [
  'maxStorageBufferBindingSize',
  'maxStorageBuffersPerShaderStage',
  'maxComputeWorkgroupStorageSize',
  'maxComputeInvocationsPerWorkgroup',
] as const;

/**
 * Describes the adapter that `gpu` offers, with the kernels that would run on it.
 *
 * @returns a description, or the reason why there is none.
 */
export async function describeAdapter(gpu: GPU | undefined): Promise<GpuDescription | string> {
  if (!gpu) return 'this engine has no WebGPU';
  const adapter = await gpu.requestAdapter({ powerPreference: 'high-performance' });
  if (!adapter) return 'WebGPU finds no adapter: no GPU, or no driver (Vulkan, Metal or Direct3D 12) for it';
  const { info } = adapter;
  let matrix: boolean;
  try {
    const device = await requestKernelDevice(adapter);
    matrix = hasMatrices(device, info);
    device.destroy();
  } catch (error) {
    return `the adapter gives no device: ${(error as Error).message}`;
  }
  const dot = '8-bit dot products';
  const products = (otherwise: string) =>
    matrix ? `subgroup matrices at head sizes 64 and 128, else ${otherwise}` : otherwise;
  return {
    name: [info.vendor, info.architecture, info.device, info.description].filter(Boolean).join(' '),
    software: isSoftware(info),
    features: [...adapter.features].sort(),
    limits: Object.fromEntries(LIMITS.map((limit) => [limit, adapter.limits[limit]])),
    matrixProducts: matrixConfigs(info).map(
      ({ componentType, resultComponentType, M, N, K }) =>
        `${componentType} ${M}x${N}x${K} -> ${resultComponentType}`,
    ),
    kernels: { f32: 'float32', mxfp8: products('float32'), mxfp6: products(dot), mxfp4: products(dot) },
  };
}
