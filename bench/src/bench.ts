import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Table } from 'console-table-printer';
import { cpuBenchmark } from './cpu.js';
import type { Benchmark, Row } from './row.js';
import { wasmBenchmark } from './wasm.js';

/** Every benchmark by the name it is asked for: `npm run bench -- cpu`. */
const benchmarks: Readonly<Record<string, Benchmark>> = { cpu: cpuBenchmark, wasm: wasmBenchmark };

const name = process.argv[2] ?? '';
const benchmark = benchmarks[name];
if (benchmark) {
  const result = await benchmark();
  const out = join(process.cwd(), 'out', 'bench');
  mkdirSync(out, { recursive: true });
  writeFileSync(join(out, `${name}.json`), `${JSON.stringify(result, null, 2)}\n`);
  print(result.rows);
  console.log(`Written to ${join(out, `${name}.json`)}`);
} else {
  console.error(`bench: "${name}" is no benchmark; there are ${Object.keys(benchmarks).join(', ')}`);
  process.exitCode = 2;
}

function print(rows: readonly Row[]): void {
  const table = new Table();
  for (const { name, shape, ours, peer, unit = 'ms', peerName, ratio, percentOfPeak } of rows) {
    table.addRow({
      work: name,
      shape,
      ours: `${ours.toFixed(2)} ${unit}`,
      peer: `${peer.toFixed(2)} ${unit}`,
      'peer is': peerName,
      ratio: ratio.toFixed(2),
      ...(percentOfPeak === undefined ? {} : { '% of peak': percentOfPeak.toFixed(0) }),
    });
  }
  table.printTable();
}
