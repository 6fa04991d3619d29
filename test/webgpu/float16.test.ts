import { useSoftwareVulkan } from '@mxattn/browser';
import { describeGpu, openGpu } from '@mxattn/ort-op/webgpu-node';
import { describe } from 'vitest';
import { table } from '../conformance/table.js';
import { float16Suite } from './float16-suite.js';

const onGpu = process.env.MXATTN_GPU !== undefined;
if (!onGpu) useSoftwareVulkan();
const description = await describeGpu();
if (typeof description === 'string') console.warn(`skipped: ${description}`);

/** Few pipelines, which take seconds to compile in software. */
const rows = onGpu
  ? table.map(({ name }) => name)
  : [
      '127 queries and keys',
      'layout BSHD',
      'grouped query heads',
      'causal, bottom-right',
      'window of 17 keys',
    ];

describe.skipIf(typeof description === 'string')('float16 tensors', async () => {
  const { device } = typeof description === 'string' ? { device: undefined! } : await openGpu();
  float16Suite(device, { unroll: onGpu, matrix: false }, rows);
});
