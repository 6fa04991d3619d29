import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';

interface Kernel {
  readonly name: string;
  readonly vgprs: number;
  readonly shared: number;
  readonly spills: number;
  readonly scratch: number;
  readonly scaled: number;
  readonly matrix: number;
  readonly bytes: number;
}

interface Unit {
  readonly architecture: string;
  readonly version: string;
  readonly warnings: string;
  readonly kernels: readonly Kernel[];
}

// Heads of 128, which take no longer than a quarter of all that tools/hip/compile.mjs compiles.
const { stdout, stderr } = spawnSync('node', ['tools/hip/compile.mjs', '--json', '--head=4'], {
  encoding: 'utf8',
  maxBuffer: 2 ** 26,
});
if (stderr) console.warn(stderr);
const compiled: readonly Unit[] = JSON.parse(stdout);
/** The rows of the documented table, each as its cells. */
const table = readFileSync('docs/hip-kernels.md', 'utf8')
  .split('\n')
  .map((line) => line.split('|').map((cell) => cell.trim()));

describe.skipIf(compiled.length === 0)('GPU kernels', () => {
  it.each(compiled)('compile without warnings: $architecture, $defines', ({ warnings }) => {
    expect(warnings).toBe('');
  });

  const kernels = compiled.flatMap(({ architecture, version, kernels }) =>
    kernels
      .filter(({ name }) => name.startsWith('attend_matrix'))
      .map((kernel) => ({ architecture, version, ...kernel })),
  );

  it.each(kernels)('multiply matrices without spilling: $architecture, $name', (kernel) => {
    expect(kernel.matrix).toBeGreaterThan(0);
    expect(kernel.spills).toBe(0);
    expect(kernel.scratch).toBe(0);
    // Of every architecture.
    expect(kernel.shared).toBeLessThanOrEqual(65536);
  });

  it.each(kernels.filter(({ architecture }) => architecture === 'gfx950'))(
    'use block scales in every product on gfx950: $name',
    ({ scaled, matrix }) => {
      expect(scaled).toBe(matrix);
    },
  );

  it.each(kernels)(
    'are as documented: $architecture, $name',
    ({ architecture, version, name, ...kernel }) => {
      const cells = table.find((row) => row[1] === architecture && row[3] === `\`${name}\``)!;
      // Another compiler allocates other registers.
      if (cells[2] !== version) {
        console.warn(`skipped: ${architecture}: the table is of clang ${cells[2]}, this is ${version}`);
        return;
      }
      expect([cells[5], cells[7], cells[11]]).toEqual(
        [kernel.vgprs, kernel.shared, kernel.bytes].map(String),
      );
    },
  );
});
