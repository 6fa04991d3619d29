import { useSoftwareVulkan } from '@mxattn/browser';
import { registerBackend } from '@mxattn/core';
import { webgpuBackend } from '@mxattn/ort-op/webgpu';
import { describeGpu, openGpu } from '@mxattn/ort-op/webgpu-node';
import { it } from 'vitest';
import { conformance, type SuiteOptions } from './suite.js';

// MXATTN_GPU=1 runs on this machine's GPU, and then all rows.
const onGpu = process.env.MXATTN_GPU !== undefined;
if (!onGpu) useSoftwareVulkan();

const SLOW = 'another pipeline, which takes seconds to compile in software';
const skipped = Object.fromEntries(
  [8, 72, 80, 96, 160, 256, 320, 384, 512].map((size) => [`head size ${size}`, SLOW]),
);
const precisions = ['f32', 'mxfp8', 'mxfp6', 'mxfp4'] as const;
// A reference that rises in the second half of a tile: attend_e4m3.wgsl has weighed the first half by then.
const emulationErrors = { 'mxfp8 scale 1': 0.01, 'mxfp8 bias by distance (ALiBi)': 0.01 };
const options: SuiteOptions = { precisions, emulationErrors, ...(onGpu ? {} : { skipped }) };

const description = await describeGpu();
if (typeof description === 'string') {
  console.warn(`skipped: ${description}`);
  it.skip('WebGPU', () => {});
} else {
  const { device, adapter } = await openGpu();
  const common = { unroll: onGpu, adapterInfo: adapter.info };
  registerBackend(webgpuBackend(device, { ...common, matrix: false }));
  conformance('webgpu', options);
  if (description.kernels.mxfp4?.startsWith('subgroup matrices')) {
    registerBackend(webgpuBackend(device, { ...common, name: 'webgpu-matrix' }));
    conformance('webgpu-matrix', { ...options, emulationError: null });
  }
}
