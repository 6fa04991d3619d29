import { registerBackend } from '@mxattn/core';
import { hipBackend, listGpus } from '@mxattn/ort-op';
import { afterAll, expect, it } from 'vitest';
import { conformance, type SuiteOptions } from '../conformance/suite.js';
import { architectures, buildFakeDriver, FakeDriver, nothing } from './fake.js';

// MXATTN_GPU=1 runs on this machine's first GPU: AMD's, or NVIDIA's through CUDA.
const onGpu = process.env.MXATTN_GPU !== undefined;

// Kernels that are emulated lane by lane take their time.
const options: SuiteOptions = {};

if (onGpu) {
  const { gpus, why } = listGpus();
  if (gpus.length === 0) {
    console.warn(`skipped: ${why}`);
    it.skip('HIP', () => {});
  } else {
    console.warn(`on ${gpus[0]!.name}, ${gpus[0]!.architecture}, by ${gpus[0]!.driver}`);
    registerBackend(hipBackend());
    conformance('hip');
  }
} else {
  const built = buildFakeDriver();
  if ('missing' in built) {
    console.warn(`skipped: ${built.missing}`);
    it.skip('HIP', () => {});
  } else {
    const driver = new FakeDriver(built.folder);
    driver.gpus(...architectures);
    const backends = architectures.map((name, gpu) => hipBackend({ name: `hip-${name}`, gpu }));
    for (const backend of backends) {
      registerBackend(backend);
      conformance(backend.name, options);
    }
    afterAll(() => {
      for (const backend of backends) backend.release();
      expect(driver.alive()).toEqual(nothing);
    });
  }
}
