/// <reference types="@webgpu/types" />
import { MxattnError } from '@mxattn/core';

/** What the npm package `webgpu` exports. */
interface DawnPackage {
  create(options: string[]): GPU;
  readonly globals: Readonly<Record<string, unknown>>;
}

/** Options of {@link openDawn}. */
export interface DawnOptions {
  /** Dawn's switches to set beside those of this package, as in `backend=null`. */
  readonly switches?: readonly string[];
}

/**
 * Dawn's features that the fast kernels need: matrix units are behind `allow_unsafe_apis`, and Dawn leaves out float16 on
 * NVIDIA's Vulkan driver unless asked. Timestamps come unquantised, for measuring.
 */
const SWITCHES = [
  'enable-dawn-features=allow_unsafe_apis,vulkan_enable_f16_on_nvidia',
  'disable-dawn-features=timestamp_quantization',
];

/** Keeps every GPU object: one that is collected takes its devices along. */
const opened: GPU[] = [];

/**
 * WebGPU for Node.js: the npm package `webgpu` (Dawn), with its globals (`GPUBufferUsage` and others) defined.
 *
 * @throws MxattnError (as a rejection) if the package is not installed.
 */
export async function openDawn(options: DawnOptions = {}): Promise<GPU> {
  const { create, globals } = await dawnPackage();
  for (const [name, value] of Object.entries(globals)) {
    if (!(name in globalThis))
      Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
  }
  const gpu = create([...SWITCHES, ...(options.switches ?? [])]);
  opened.push(gpu);
  return gpu;
}

async function dawnPackage(): Promise<DawnPackage> {
  // Not a literal: an optional package, whose types need not be there either.
  const name = 'webgpu';
  try {
    return (await import(name)) as DawnPackage;
  } catch (error) {
    throw new MxattnError(
      `WebGPU in Node.js needs the package "webgpu": npm install webgpu (${(error as Error).message.split('\n')[0]})`,
    );
  }
}
