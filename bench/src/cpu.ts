import { cpus } from 'node:os';
import { isaLevels, measurePeaks } from '@mxattn/ort-op';
import { cacheRows, decodeRows } from './cpu-decode.js';
import { prefillRows } from './cpu-prefill.js';
import type { BenchmarkResult } from './row.js';

/** Threads of both sides. */
const THREADS = 2;

/** The CPU kernel against ONNX Runtime's own attention in f32, on the same runtime, with as many threads. */
export async function cpuBenchmark(): Promise<BenchmarkResult> {
  const peaks = await measurePeaks(THREADS);
  const rows = [
    ...(await prefillRows(THREADS, peaks)),
    ...(await decodeRows(THREADS)),
    ...(await cacheRows(THREADS)),
  ];
  const machine = {
    cpu: cpus()[0]?.model ?? '',
    isa: process.env.MXATTN_ISA ?? isaLevels()[0]!,
    threads: THREADS,
    'float32 GFLOP/s': Math.round(peaks.float32),
    'int8 GOP/s': Math.round(peaks.int8),
  };
  return { machine, rows };
}
