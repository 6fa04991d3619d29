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
// A reference that rises in the second half of a tile: attend_e4m3.wgsl has weighed the first half by then.
const emulationErrors = { 'mxfp8 scale 1': 0.01, 'mxfp8 bias by distance (ALiBi)': 0.01 };
const options: SuiteOptions = { emulationErrors, ...(onGpu ? {} : { skipped }) };
// In software those that have a pipeline in common, and one of each kind.
const e4m3: SuiteOptions = onGpu
  ? options
  : {
      ...options,
      skipped: {},
      rows: [
        '129 queries and keys',
        'grouped query heads',
        'scale 1',
        'last keys 40 nats above the rest',
        'causal, bottom-right',
        'mask and bias',
        'head size 40',
      ],
    };

const description = await describeGpu();
if (typeof description === 'string') {
  console.warn(`skipped: ${description}`);
  it.skip('WebGPU', () => {});
} else {
  const { device, adapter } = await openGpu();
  const common = { unroll: onGpu, adapterInfo: adapter.info };
  registerBackend(webgpuBackend(device, { ...common, matrix: false }));
  conformance('webgpu', options);
  conformance('webgpu', { ...e4m3, precisions: ['mxfp8'] });
  if (description.kernels.mxfp4?.startsWith('subgroup matrices')) {
    registerBackend(webgpuBackend(device, { ...common, name: 'webgpu-matrix' }));
    const precisions = ['f32', 'mxfp8', 'mxfp6', 'mxfp4'] as const;
    conformance('webgpu-matrix', { ...options, precisions, emulationError: null });
  }
}
