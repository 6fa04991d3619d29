import { registerBackend } from '@mxattn/core';
import { hipBackend, listGpus } from '@mxattn/ort-op';
import { afterAll, expect, it } from 'vitest';
import { conformance, type SuiteOptions } from '../conformance/suite.js';
import { architectures, buildFakeDriver, FakeDriver, nothing } from './fake.js';

// MXATTN_GPU=1 runs on this machine's first GPU: AMD's, or NVIDIA's through CUDA.
const onGpu = process.env.MXATTN_GPU !== undefined;

// Kernels that are emulated lane by lane take their time: everyday tests run one row of each kind.
const everyday = [
  '1 queries and keys',
  '129 queries and keys',
  'head size 32',
  'head size 72',
  'head size 128',
  'head size 256',
  'head size 576',
  'value head size 24',
  'two sequences',
  'grouped query heads',
  'decode: one query, grouped heads',
  'causal, bottom-right',
  'window to both sides',
  'soft cap before a bias beyond it',
  'bias with minus infinity',
  'whole tiles of keys masked, and all of some heads',
  'a sink and fully masked rows',
];
const all = onGpu || process.env.MXATTN_LONG_TESTS !== undefined;
if (!all) console.warn('some rows of the conformance table are left out; MXATTN_LONG_TESTS=1 runs all');

const options: SuiteOptions = {
  ...(all ? {} : { rows: everyday }),
  precisions: ['f32', 'mxfp8', 'mxfp6', 'mxfp4'],
};

/** The weights straight in E4M3 codes, which the GPU alone has. */
const direct: SuiteOptions = {
  ...options,
  precisions: ['mxfp6-direct'],
  skipped: all
    ? {
        'few queries, many keys, all of it':
          'keys are split, and a reference that rises in one part does not in the others: their weights are rounded elsewhere',
      }
    : {},
};

if (onGpu) {
  const { gpus, why } = listGpus();
  if (gpus.length === 0) {
    console.warn(`skipped: ${why}`);
    it.skip('HIP', () => {});
  } else {
    console.warn(`on ${gpus[0]!.name}, ${gpus[0]!.architecture}, by ${gpus[0]!.driver}`);
    registerBackend(hipBackend());
    conformance('hip', options);
    conformance('hip', direct);
  }
} else {
  const built = await buildFakeDriver();
  if ('missing' in built) {
    console.warn(`skipped: ${built.missing}`);
    it.skip('HIP', () => {});
  } else {
    const driver = new FakeDriver(built.folder);
    driver.gpus(...architectures);
    const backends = architectures.map((name, gpu) => hipBackend({ name: `hip-${name}`, gpu }));
    for (const [index, backend] of backends.entries()) {
      registerBackend(backend);
      // Without matrix instructions for it, f32 is the same everywhere.
      const precisions = options.precisions!.filter((name) => all || name !== 'f32' || index === 0);
      conformance(backend.name, { ...options, precisions });
      conformance(backend.name, direct);
    }
    afterAll(() => {
      for (const backend of backends) backend.release();
      expect(driver.alive()).toEqual(nothing);
    });
  }
}
