import { precision, registerBackend, wasmBackend } from '@mxattn/core';
import { isaLevels, nativeBackend } from '@mxattn/ort-op';
import { conformance } from './suite.js';
import { table } from './table.js';

const isas = isaLevels();
for (const isa of isas) registerBackend(nativeBackend(isa));
const wasmBuilds = (['simd', 'relaxed-simd'] as const).filter((build) => {
  const backend = wasmBackend({ build });
  registerBackend(backend);
  return backend.supports(table[0]!.spec, precision('mxfp6')) === true;
});

// Its own rounding differs from that of kernels, in float64.
const precisions = ['f32', 'mxfp6', 'mxfp4', 'mxfp8'] as const;
conformance('emulation', { precisions, emulationError: null });
for (const isa of isas) conformance(`native-${isa}`, { precisions });
for (const build of wasmBuilds) conformance(`wasm-${build}`);
