import { spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Table } from 'console-table-printer';
import { cpuBenchmark } from './cpu.js';
import { llmBenchmark } from './llm.js';
import { ratioPlot } from './ratio-plot.js';
import type { Benchmark, Row } from './row.js';
import { wasmBenchmark } from './wasm.js';
import { webgpuBenchmark } from './webgpu.js';

/** Every benchmark by the name it is asked for: `npm run bench -- cpu`. */
const benchmarks: Readonly<Record<string, Benchmark>> = {
  cpu: cpuBenchmark,
  llm: llmBenchmark,
  wasm: wasmBenchmark,
  webgpu: webgpuBenchmark,
};

/** What is computed rather than measured, as there is no such GPU here. */
const models: Readonly<Record<string, string>> = { 'hip-model': 'tools/hip/model.mjs' };

const name = process.argv[2] ?? '';
const benchmark = benchmarks[name];
const model = models[name];
if (model) {
  process.exitCode = spawnSync(process.execPath, [model], { stdio: 'inherit' }).status ?? 1;
} else if (benchmark) {
  const result = await benchmark();
  const out = join(process.cwd(), 'out', 'bench');
  mkdirSync(out, { recursive: true });
  writeFileSync(join(out, `${name}.json`), `${JSON.stringify(result, null, 2)}\n`);
  writeFileSync(join(out, `${name}.svg`), ratioPlot(result));
  print(result.rows);
  for (const [fact, value] of Object.entries(result.machine)) console.log(`${fact}: ${value}`);
  console.log(`Written to ${join(out, `${name}.json`)} and ${name}.svg`);
} else {
  console.error(
    `bench: "${name}" is no benchmark; there are ${[...Object.keys(benchmarks), ...Object.keys(models)].join(', ')}`,
  );
  process.exitCode = 2;
}

function print(rows: readonly Row[]): void {
  const table = new Table();
  for (const { name, shape, ours, quantise, peer, unit = 'ms', peerName, ratio, percentOfPeak } of rows) {
    const shown = (value: number) => `${value.toFixed(value < 1 ? 4 : 2)} ${unit}`;
    table.addRow({
      work: name,
      shape,
      ours: shown(ours),
      ...(quantise === undefined ? {} : { quantise: shown(quantise) }),
      peer: shown(peer),
      'peer is': peerName,
      ratio: ratio.toFixed(2),
      ...(percentOfPeak === undefined ? {} : { '% of peak': percentOfPeak.toFixed(0) }),
    });
  }
  table.printTable();
}
