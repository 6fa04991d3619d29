import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import {
  type ElementName,
  elementFormats,
  encodeElement,
  packCodes,
  quantizeBlocks,
  rowView,
  type ScaleRule,
  toBf16,
  toF16,
} from '@mxattn/core';
import { describe, expect, test } from 'vitest';
import { normal, uniform } from './random.js';

// MXATTN_PYTHON names a Python that has ml_dtypes and, for the blocks, torchao and torch.
const python = process.env.MXATTN_PYTHON ?? 'python3';
const script = fileURLToPath(new URL('./independent.py', import.meta.url));

function lacks(module: string): boolean {
  const missing = spawnSync(python, ['-c', `import ${module}`]).status !== 0;
  if (missing) {
    console.warn(`SKIPPED: no independent check with ${module}: ${python} cannot import it (MXATTN_PYTHON)`);
  }
  return missing;
}

function cast(what: 'elements' | 'blocks', numbers: Float32Array): Buffer {
  const { status, stdout, stderr } = spawnSync(python, [script, what], {
    input: Buffer.from(numbers.buffer, numbers.byteOffset, numbers.byteLength),
    maxBuffer: 2 ** 28,
  });
  expect(status, stderr.toString()).toBe(0);
  return stdout;
}

const NAMES: ElementName[] = ['e4m3', 'e5m2', 'e2m3', 'e3m2', 'e2m1'];

/** float32 neighbour of x away from zero (1) or toward it (-1). */
function neighbour(x: number, direction: number): number {
  const value = Float32Array.of(x);
  const bits = new Uint32Array(value.buffer);
  bits[0] = bits[0]! + direction;
  return value[0]!;
}

/** All values of the formats, the midpoints between them, and the float32 neighbours of both. */
function borders(): number[] {
  const numbers: number[] = [];
  for (const name of NAMES) {
    const finite = [...elementFormats[name].values].filter((x) => Number.isFinite(x) && x > 0);
    finite.forEach((x, i) => {
      for (const point of [x, ((finite[i - 1] ?? 0) + x) / 2]) {
        numbers.push(point, neighbour(point, 1), neighbour(point, -1));
      }
    });
  }
  return numbers.flatMap((x) => [x, -x]);
}

describe('elements, against ml_dtypes', () => {
  test.skipIf(lacks('ml_dtypes'))('borders of all formats and 1e5 random numbers each', () => {
    const next = uniform(1);
    const random = NAMES.flatMap((name) => {
      const { max, bias, mantissaBits } = elementFormats[name];
      const least = Math.log2(max) + bias + mantissaBits + 1;
      return Array.from({ length: 100_000 }, () => (next() < 0.5 ? -1 : 1) * max * 2 ** (-next() * least));
    });
    const numbers = Float32Array.from([0, -0, ...borders(), ...random]);
    const codes = cast('elements', numbers);
    let offset = 0;
    for (const name of NAMES) {
      const format = elementFormats[name];
      let compared = 0;
      numbers.forEach((x, i) => {
        // Beyond the largest value ml_dtypes gives NaN or infinity where it has them; MX saturates.
        if (Math.abs(x) > format.max) return;
        compared++;
        if (encodeElement(format, x) !== codes[offset + i]) {
          expect.fail(`${name} of ${x}: code ${encodeElement(format, x)}, ml_dtypes ${codes[offset + i]}`);
        }
      });
      expect(compared).toBeGreaterThan(100_000);
      offset += numbers.length;
    }
    for (const [name, convert] of [
      ['bfloat16', toBf16],
      ['float16', toF16],
    ] as const) {
      numbers.forEach((x, i) => {
        const expected = codes.readUInt16LE(offset + 2 * i);
        if (convert(x) !== expected) expect.fail(`${name} of ${x}: ${convert(x)}, expected ${expected}`);
      });
      offset += 2 * numbers.length;
    }
    expect(offset).toBe(codes.length);
  });
});

describe('MX blocks, against torchao', () => {
  test.skipIf(lacks('torchao.prototype.mx_formats.mx_tensor'))(
    '2000 blocks per format and scale rule',
    () => {
      const next = uniform(2);
      const numbers = normal(2000 * 32, 3);
      for (let block = 0; block < 2000; block++) {
        const scale = 2 ** Math.floor(40 * next() - 20);
        for (let i = 0; i < 32; i++) numbers[block * 32 + i] = numbers[block * 32 + i]! * scale;
      }
      const output = cast('blocks', numbers);
      // torchao's RCEIL is the rule that never saturates; its CEIL is another.
      const rules: ScaleRule[] = ['floor', 'ceil', 'even'];
      let offset = 0;
      for (const format of NAMES) {
        for (const rule of rules) {
          const { codes, scales } = quantizeBlocks(numbers, rowView(2000, 32), { format, rule });
          expect(output.subarray(offset, offset + 2000).equals(scales), `${format} ${rule}: scales`).toBe(
            true,
          );
          offset += 2000;
          // Only the four-bit codes come packed.
          const bytes = format === 'e2m1' ? packCodes(elementFormats[format], codes) : codes;
          const expected = output.subarray(offset, offset + bytes.length);
          expect(expected.equals(bytes), `${format} ${rule}: codes`).toBe(true);
          offset += bytes.length;
        }
      }
      expect(offset).toBe(output.length);
    },
  );
});
