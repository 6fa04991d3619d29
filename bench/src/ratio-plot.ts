import * as Plot from '@observablehq/plot';
import type { BenchmarkResult, Row } from './row.js';
import { svg } from './svg.js';

/** How many times faster (or smaller) each row is than its peer, as an SVG. Logarithmic: ratios go from 1 to 100. */
export function ratioPlot({ rows }: BenchmarkResult): string {
  const label = ({ name, shape, peerName }: Row) => `${name} (${shape}) against ${peerName}`;
  return svg({
    width: 1100,
    marginLeft: 640,
    marginRight: 60,
    height: 60 + 24 * rows.length,
    x: {
      type: 'log',
      label: 'peer / ours',
      grid: true,
      ticks: [0.5, 1, 2, 5, 10, 20, 50, 100],
      tickFormat: String,
    },
    y: { label: null, domain: rows.map(label) },
    marks: [
      Plot.ruleX([1]),
      Plot.barX(rows, { y: label, x1: () => 1, x2: 'ratio', fill: '#1f7a8c' }),
      Plot.text(rows, {
        y: label,
        x: 'ratio',
        text: ({ ratio }: Row) => ratio.toFixed(1),
        textAnchor: 'start',
        dx: 4,
      }),
    ],
  });
}
