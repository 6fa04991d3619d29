import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { EfqCalibration } from '@mxattn/core';
import { terminalProgress } from '@mxattn/progress';
import type { JobResult } from './experiment.js';
import { markdown } from './markdown.js';
import { efqJobs, efqSettings, firstJobs, seeds } from './plan.js';
import { plots } from './plots.js';
import { runJobs } from './pool.js';
import { summarize } from './results.js';

const outDir = join(process.cwd(), 'out', 'table');

const first = firstJobs();
const total = first.length + efqSettings.length * seeds.length;

const results = await terminalProgress('measuring errors', total, async (step) => {
  let done = 0;
  const onDone = () => step(++done);
  const results: JobResult[] = await runJobs(first, onDone);
  const calibrations = new Map<string, EfqCalibration>();
  for (const result of results) {
    if (result.kind === 'calibrate') calibrations.set(result.key, result.calibration);
  }
  results.push(...(await runJobs(efqJobs(calibrations), onDone)));
  return results;
});

const table = summarize(results);
const text = markdown(table);
mkdirSync(outDir, { recursive: true });
writeFileSync(join(outDir, 'table.json'), `${JSON.stringify(table, null, 2)}\n`);
writeFileSync(join(outDir, 'table.md'), text);
for (const [name, picture] of Object.entries(plots(table))) writeFileSync(join(outDir, name), picture);

console.log(text);
console.log(`Written to ${outDir}`);
if (table.checks.some(({ ok }) => !ok)) process.exitCode = 1;
