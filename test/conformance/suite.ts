import {
  attention,
  attentionSpec,
  conventional,
  emulateAttention,
  fromF16,
  precision,
  type Recipe,
  referenceAttention,
  toF16,
} from '@mxattn/core';
import { describe, expect, it } from 'vitest';
import { EMULATION_ERROR, FLOAT_ERROR } from './bounds.js';
import { normal, relativeError, sameBytes } from './random.js';
import { type Row, table } from './table.js';

const everywhere = ['f32', 'mxfp6', 'mxfp4'] as const;
type Name = (typeof everywhere)[number] | 'mxfp8' | 'mxfp6-direct';

/** What differs between backends. */
export interface SuiteOptions {
  /** Rows that the backend refuses, each with the reason. */
  readonly refused?: Readonly<Record<string, string>>;
  /** Rows left out here, each with the reason. */
  readonly skipped?: Readonly<Record<string, string>>;
  /** The rows to run; default all. */
  readonly rows?: readonly string[];
  /** Default: what every kernel has. */
  readonly precisions?: readonly Name[];
  /** Bound of the distance from the emulation; null where the backend weighs otherwise than the recipe says. */
  readonly emulationError?: number | null;
  /** Other bounds for rows of a precision, by `precision row`. */
  readonly emulationErrors?: Readonly<Record<string, number>>;
}

/** Computed once for all backends. */
function memo<T>(compute: (row: Row, name: Name) => T): (row: Row, name: Name) => T {
  const results = new Map<string, T>();
  return (row, name) => {
    const key = `${name} ${row.name}`;
    if (!results.has(key)) results.set(key, compute(row, name));
    return results.get(key)!;
  };
}

const reference = memo(({ tensors, spec }) => referenceAttention(tensors, spec));
const emulated = memo(({ tensors, spec }, name) =>
  emulateAttention(tensors, spec, precision(name), { arithmetic: 'f32' }),
);

/** The error of an ordinary softmax on the same quantised operands: what the format itself costs on these data. */
const formatError = memo((row, name) => {
  const recipe = precision(name);
  const { weights } = recipe.softmax;
  const operand = weights.kind === 'exponential' ? weights.operand : null;
  const ordinary: Recipe = { ...recipe, softmax: conventional(operand) };
  return relativeError(emulateAttention(row.tensors, row.spec, ordinary), reference(row, 'f32'));
});

/** Everything that a registered backend must get right. */
export function conformance(backend: string, options: SuiteOptions = {}): void {
  const { refused = {}, skipped = {}, precisions = everywhere } = options;
  const { emulationError = EMULATION_ERROR, emulationErrors = {} } = options;
  for (const [row, reason] of Object.entries(skipped)) console.warn(`skipped: ${backend}, ${row}: ${reason}`);
  const rows = table.filter(({ name }) => !(name in skipped) && (options.rows?.includes(name) ?? true));
  describe(backend, () => {
    describe.each(precisions)('%s', (name) => {
      it.each(rows)('$name', async (row) => {
        const { spec, tensors } = row;
        const run = () => attention(tensors, spec, { precision: name, backend });
        const reason = refused[row.name];
        if (reason) {
          await expect(run()).rejects.toThrow(reason);
          return;
        }
        const inputs = [tensors.query, tensors.key, tensors.value];
        const before = inputs.map((data) => data.slice());
        const output = await run();
        expect(inputs.every((data, i) => sameBytes(data, before[i]!))).toBe(true);
        expect(output.every(Number.isFinite)).toBe(true);
        const error = relativeError(output, reference(row, 'f32'));
        if (name === 'f32') {
          expect(error).toBeLessThan(row.largeScores ? FLOAT_ERROR.largeScores : FLOAT_ERROR.usual);
        } else {
          // What the fused softmax may add to the error of the format.
          expect(error).toBeLessThan(formatError(row, name) * 1.1 + 0.01);
        }
        if (emulationError !== null) {
          const bound = emulationErrors[`${name} ${row.name}`] ?? emulationError;
          expect(relativeError(output, emulated(row, name))).toBeLessThan(bound);
        }
      });

      it('gives zeros in rows without a visible key', async () => {
        const { tensors, spec } = rowNamed('a sink and fully masked rows');
        const output = await attention(tensors, spec, { precision: name, backend });
        for (let query = 0; query < spec.queryLength; query++) {
          const values = output.slice(query * spec.valueHeadSize, (query + 1) * spec.valueHeadSize);
          expect(values.every((value) => value === 0)).toBe(query % 4 === 0);
        }
      });

      it.each(['BHSD', 'BSHD'] as const)(
        'never reads the tail of an over-long buffer, %s',
        async (layout) => {
          const spec = attentionSpec({
            batch: 2,
            heads: 4,
            kvHeads: 2,
            queryLength: 9,
            keyLength: 70,
            headSize: 64,
            layout,
          });
          const roomy = { ...spec, keyCapacity: 128 };
          const sizes = layout === 'BHSD' ? { runs: 4, token: 64 } : { runs: 2, token: 128 };
          const query = normal(2 * 4 * 9 * 64, 1);
          const exact = [normal(2 * 2 * 70 * 64, 2), normal(2 * 2 * 70 * 64, 3)] as const;
          const [key, value] = exact.map((data) => {
            const long = new Float32Array(sizes.runs * 128 * sizes.token).fill(NaN);
            for (let run = 0; run < sizes.runs; run++) {
              const from = run * 70 * sizes.token;
              long.set(data.subarray(from, from + 70 * sizes.token), run * 128 * sizes.token);
            }
            return long;
          }) as [Float32Array, Float32Array];
          const options = { precision: name, backend } as const;
          const expected = await attention({ query, key: exact[0], value: exact[1] }, spec, options);
          expect(sameBytes(await attention({ query, key, value }, roomy, options), expected)).toBe(true);
          expect(
            sameBytes(
              referenceAttention({ query, key, value }, roomy),
              referenceAttention({ query, key: exact[0], value: exact[1] }, spec),
            ),
          ).toBe(true);
        },
      );

      it('takes and gives float16', async () => {
        const { tensors, spec } = rowNamed('grouped query heads');
        const [query, key, value] = [tensors.query, tensors.key, tensors.value].map((data) =>
          Uint16Array.from(data, toF16),
        );
        const half = await attention({ query: query!, key: key!, value: value! }, spec, {
          precision: name,
          backend,
        });
        const [q, k, v] = [query, key, value].map((data) => Float32Array.from(data!, fromF16));
        const expected = await attention({ query: q!, key: k!, value: v! }, spec, {
          precision: name,
          backend,
        });
        expect(half).toBeInstanceOf(Uint16Array);
        expect(half).toEqual(Uint16Array.from(expected, toF16));
      });

      it('spoils the row of a NaN and no other', async () => {
        const { tensors, spec } = rowNamed('129 queries and keys');
        const query = tensors.query.slice();
        query[5 * spec.headSize + 3] = NaN;
        const output = await attention({ ...tensors, query }, spec, { precision: name, backend });
        const clean = await attention(tensors, spec, { precision: name, backend });
        const size = spec.valueHeadSize;
        expect(output.slice(5 * size, 6 * size).every(Number.isNaN)).toBe(true);
        expect(sameBytes(output.slice(0, 5 * size), clean.slice(0, 5 * size))).toBe(true);
        expect(sameBytes(output.slice(6 * size), clean.slice(6 * size))).toBe(true);
      });

      // 127 keys with score 0 and the last one, in the second tile, `height` log2 units up; V is 1 there only. The
      // frozen maximum of the first tile is 0. Powers of two and a head size without rotation: all operands are exact.
      it.each([1, 2, 4, 8, 16, 64])('weighs a single late key %i log2 units up', async (height) => {
        const size = 33;
        const spec = attentionSpec({
          heads: 1,
          queryLength: 1,
          keyLength: 128,
          headSize: size,
          scale: 1 / Math.LOG2E,
        });
        const query = new Float32Array(size);
        query[0] = 1;
        const key = new Float32Array(128 * size);
        key[127 * size] = height;
        const value = new Float32Array(128 * size);
        value.fill(1, 127 * size);
        const [weight] = await attention({ query, key, value }, spec, { precision: name, backend });
        const expected = 2 ** height / (127 + 2 ** height);
        // With a key 2^8 above them, the 31 others of its block round to zero: 31 of 383 parts.
        expect(Math.abs(weight! / expected - 1)).toBeLessThan(name === 'f32' ? 1e-6 : 0.09);
      });
    });
  });
}

function rowNamed(name: string): Row {
  return table.find((row) => row.name === name)!;
}
