import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { convertModel, writeModel } from '@mxattn/ort-op';
import { afterAll, describe, expect, it } from 'vitest';
import { zooModel, zooNames } from './zoo.js';

// MXATTN_PYTHON names a Python that has onnx.
const python = process.env.MXATTN_PYTHON ?? 'python3';
const script = fileURLToPath(new URL('./onnx-checker.py', import.meta.url));
const missing = spawnSync(python, ['-c', 'import onnx']).status !== 0;
if (missing) console.warn(`SKIPPED: no check with onnx: ${python} cannot import it (MXATTN_PYTHON)`);

describe.skipIf(missing)("the ONNX project's checker", () => {
  const folder = mkdtempSync(join(tmpdir(), 'mxattn-'));
  afterAll(() => rmSync(folder, { recursive: true }));

  it.each(['fused', 'contrib'] as const)('accepts models converted for target %s', (target) => {
    const files = zooNames.flatMap((name) => {
      const { model, report } = convertModel(zooModel(name), { target, crossAttention: true });
      if (report.replaced.length === 0) return [];
      const path = join(folder, `${name}.${target}.onnx`);
      writeFileSync(path, writeModel(model));
      return [path];
    });
    expect(files.length).toBeGreaterThan(40);
    const { status, stdout, stderr } = spawnSync(python, [script, ...files], { encoding: 'utf8' });
    expect(status, stderr).toBe(0);
    expect(Number(stdout)).toBe(files.length);
  });
});
