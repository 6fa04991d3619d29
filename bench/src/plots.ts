import * as Plot from '@observablehq/plot';
import { paperPrecisions } from './plan.js';
import type { Table } from './results.js';
import { svg } from './svg.js';

const SERIES = { conventional: '#9aa5b1', fused: '#1f7a8c', published: '#0b3954', 'no rollback': '#d1495b' };

interface Bar {
  group: string;
  series: string;
  percent: number;
}

/** Groups of bars, every bar named and labelled with its value. */
function bars(data: Bar[], colors: Record<string, string>, options: Plot.PlotOptions = {}): string {
  const series = Object.keys(colors);
  const groups = [...new Set(data.map(({ group }) => group))];
  return svg({
    marginLeft: 160,
    marginRight: 100,
    insetRight: 36,
    height: 60 + groups.length * (20 + 16 * series.length),
    y: { label: null, domain: series },
    fy: { label: null, padding: 0.2, domain: groups },
    color: { domain: series, range: Object.values(colors) },
    x: { label: 'relative error, %', grid: true },
    ...options,
    marks: [
      Plot.barX(data, { fy: 'group', y: 'series', x: 'percent', fill: 'series' }),
      Plot.text(data, {
        fy: 'group',
        y: 'series',
        x: 'percent',
        text: ({ percent }: Bar) => percent.toFixed(1),
        textAnchor: 'start',
        dx: 4,
      }),
    ],
  });
}

/** The plots by file name. */
export function plots(table: Table): Record<string, string> {
  const { 'no rollback': noRollback, published, ...pair } = SERIES;
  const papers = paperPrecisions.flatMap((name): Bar[] => [
    { group: name, series: 'conventional', percent: table.papers[name].conventional.mean },
    { group: name, series: 'fused', percent: table.papers[name].fused.mean },
    { group: name, series: 'published', percent: table.papers[name].published },
  ]);
  const stress = Object.entries(table.stress).flatMap(([group, row]): Bar[] => [
    { group, series: 'conventional', percent: row.mxfp8.conventional.mean },
    { group, series: 'fused', percent: row.mxfp8.fused.mean },
    { group, series: 'no rollback', percent: row.mxfp8.withoutRollback.mean },
  ]);
  const efqSeries = {
    'mxfp4 weights': '#9aa5b1',
    'mxfp4 weights, exact sum': '#cbd2d9',
    efq: '#f4a259',
    'efq-lut': '#bc6c25',
  };
  const efq = table.efq.flatMap(({ distribution, temperature, errors }) =>
    Object.keys(efqSeries).map(
      (series): Bar => ({
        group: `${distribution}, T = ${temperature}`,
        series,
        percent: errors[series]!.mean,
      }),
    ),
  );
  const keys = table.keys.flatMap(({ keys, errors }) =>
    paperPrecisions.flatMap((precision) =>
      (['conventional', 'fused'] as const).map((series) => ({
        keys,
        precision,
        series,
        percent: errors[precision][series].mean,
      })),
    ),
  );
  const last = Math.max(...table.keys.map((row) => row.keys));
  return {
    'papers.svg': bars(papers, { ...pair, published }),
    'stress.svg': bars(
      stress,
      { ...pair, 'no rollback': noRollback },
      { x: { type: 'sqrt', label: 'mxfp8: relative error, %', grid: true } },
    ),
    'efq.svg': bars(efq, efqSeries, { marginRight: 140 }),
    'keys.svg': svg({
      marginRight: 130,
      x: { type: 'log', base: 2, label: 'keys', tickFormat: 'd' },
      height: 420,
      y: { type: 'log', label: 'relative error, %', grid: true, domain: [5, 25] },
      color: { domain: Object.keys(pair), range: Object.values(pair) },
      marks: [
        Plot.lineY(keys, {
          x: 'keys',
          y: 'percent',
          stroke: 'series',
          z: (row: { precision: string; series: string }) => row.precision + row.series,
          marker: 'dot',
        }),
        ...Object.keys(pair).map((series, i) =>
          Plot.text(
            keys.filter((row) => row.keys === last && row.series === series),
            {
              x: 'keys',
              y: 'percent',
              text: ({ precision }: { precision: string }) => `${precision} ${series}`,
              fill: 'series',
              textAnchor: 'start',
              dx: 8,
              dy: i === 0 ? 4 : -4,
            },
          ),
        ),
      ],
    }),
  };
}
