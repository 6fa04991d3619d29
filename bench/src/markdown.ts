import { paperPrecisions } from './plan.js';
import type { ErrorSummary, Pair, Table } from './results.js';

const percent = ({ mean }: ErrorSummary) => mean.toFixed(2);
const range = ({ mean, least, most }: ErrorSummary) =>
  `${mean.toFixed(2)} (${least.toFixed(2)}-${most.toFixed(2)})`;
const signed = (x: number) => `${x < 0 ? '-' : '+'}${Math.abs(x).toFixed(2)}`;
const weight = (x: number) => x.toFixed(4);

function rows(head: string[], body: (string | number)[][]): string {
  const line = (cells: (string | number)[]) => `| ${cells.join(' | ')} |`;
  return [line(head), line(head.map(() => '---')), ...body.map(line)].join('\n');
}

function sweepRows(name: string, entries: [number, Record<string, Pair>][]): string {
  return rows(
    [name, ...paperPrecisions.flatMap((precision) => [`${precision} conventional`, 'fused'])],
    entries.map(([value, errors]) => [
      value,
      ...paperPrecisions.flatMap((precision) => [
        percent(errors[precision]!.conventional),
        percent(errors[precision]!.fused),
      ]),
    ]),
  );
}

/** The tables as Markdown. What the figures mean is told in docs/numerics.md. */
export function markdown(table: Table): string {
  const { settings } = table;
  const failed = table.checks.filter(({ ok }) => !ok);
  return [
    '# Errors of block-scaled attention',
    '',
    'Relative error of the output, 100 * ||o - o_ref|| / ||o_ref||, against float64 attention on the same ' +
      `bfloat16 inputs; mean (least-most) of ${settings.seeds.length} seeds. docs/numerics.md explains each table.`,
    '',
    '## Fused-Softmax, the published setting: normal inputs, 4096 keys, head size 128',
    '',
    '![](papers.svg)',
    '',
    rows(
      ['precision', 'conventional softmax', 'complete pipeline', 'published', 'added', 'published'],
      paperPrecisions.map((name) => {
        const row = table.papers[name];
        return [name, range(row.conventional), range(row.fused), row.published, signed(row.added), '<= 0.3'];
      }),
    ),
    '',
    '### Other recipes on inputs of the same kind',
    '',
    rows(
      ['recipe', 'error'],
      Object.entries(table.variants).map(([name, errors]) => [name, range(errors)]),
    ),
    '',
    '## Stress inputs: 1024 keys (maxstair 2048), head size 128',
    '',
    '![](stress.svg)',
    '',
    rows(
      [
        'inputs',
        'precision',
        'conventional',
        'fused',
        'difference',
        'rollbacks per row',
        'without rollback',
        'clipped weights per row',
      ],
      Object.entries(table.stress).flatMap(([name, errors]) =>
        paperPrecisions.map((precision) => {
          const row = errors[precision];
          return [
            name,
            precision,
            percent(row.conventional),
            percent(row.fused),
            signed(row.added),
            row.rollbacksPerRow.toFixed(2),
            percent(row.withoutRollback),
            row.saturationsPerRow.toFixed(2),
          ];
        }),
      ),
    ),
    '',
    '### A sink before a long tail: 4096 keys',
    '',
    rows(
      ['recipe', 'error'],
      Object.entries(table.longSink).map(([name, errors]) => [name, range(errors)]),
    ),
    '',
    '## One late key above 127 others: its weight',
    '',
    rows(
      [
        'log2 units above',
        'exact',
        ...paperPrecisions,
        ...paperPrecisions.map((name) => `${name}, no rollback`),
      ],
      table.lateKey.map(({ height, exact, fused, withoutRollback }) => [
        height,
        weight(exact),
        ...paperPrecisions.map((name) => weight(fused[name])),
        ...paperPrecisions.map((name) => weight(withoutRollback[name])),
      ]),
    ),
    '',
    '## EFQ-Softmax: four-bit weights only, 1024 keys, head size 128',
    '',
    '![](efq.svg)',
    '',
    rows(
      [
        'inputs',
        'temperature',
        'exp, then MXFP4',
        'the same, exact sum',
        'EFQ',
        'tau',
        'step',
        'EFQ-LUT',
        'tau',
        'step',
        'table',
      ],
      table.efq.map(({ distribution, temperature, errors, affine, table: lut }) => [
        distribution,
        temperature,
        percent(errors['mxfp4 weights']!),
        percent(errors['mxfp4 weights, exact sum']!),
        percent(errors.efq!),
        affine.tau.toFixed(3),
        affine.step.toFixed(3),
        percent(errors['efq-lut']!),
        lut.tau.toFixed(3),
        lut.step.toFixed(3),
        lut.table!.join(' '),
      ]),
    ),
    '',
    '## Number of keys (head size 128)',
    '',
    '![](keys.svg)',
    '',
    sweepRows(
      'keys',
      table.keys.map(({ keys, errors }) => [keys, errors]),
    ),
    '',
    '## Head size (1024 keys)',
    '',
    sweepRows(
      'head size',
      table.headSize.map(({ size, errors }) => [size, errors]),
    ),
    '',
    '## Requirements',
    '',
    failed.length === 0
      ? `All ${table.checks.length} hold.`
      : rows(
          ['failed', 'value', 'expected'],
          failed.map(({ name, value, expected }) => [name, String(value), expected]),
        ),
    '',
  ].join('\n');
}
