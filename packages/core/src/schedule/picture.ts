import type { PrecisionName } from '../precision/recipes.js';
import type { Phase, Schedule } from './schedule.js';

const CELL = 18;
const LEGEND = 100;
const MARGIN = { left: 52, top: 8, bottom: 44 };

/**
 * Colours of precisions in pictures: one hue per family of recipes, darker for more bits, so that the four usual ones also
 * differ in grey.
 */
export const precisionColors: Readonly<Record<PrecisionName, string>> = {
  f32: '#0b3954',
  mxfp8: '#1f7a8c',
  'mxfp8-lifted': '#2a93a8',
  mxfp6: '#5fb3b3',
  'mxfp6-direct': '#7cc4c4',
  mxfp4: '#d6e9c6',
  f8f6: '#6d597a',
  f6f8: '#8d789a',
  f6f4: '#b09fbb',
  f4f8: '#cfc3d6',
  efq4: '#f4a259',
  'efq4-lut': '#bc6c25',
};

/** What a picture of a schedule shows. */
export interface SchedulePictureOptions {
  /** Columns; default the schedule's own steps, or 1. */
  readonly steps?: number;
  /** Rows; default 1. */
  readonly layers?: number;
  /** Default decode. */
  readonly phase?: Phase;
}

/** Draws a schedule as a self-contained SVG: steps from left to right, layers from top to bottom. */
export function scheduleSvg(schedule: Schedule, options: SchedulePictureOptions = {}): string {
  const { steps = schedule.steps ?? 1, layers = 1, phase = 'decode' } = options;
  const cells: string[] = [];
  const used = new Set<PrecisionName>();
  for (let layer = 0; layer < layers; layer++) {
    for (let step = 0; step < steps; step++) {
      const precision = schedule.precisionAt({ step, steps, layer, layers, phase });
      used.add(precision);
      cells.push(
        `<rect x="${MARGIN.left + step * CELL}" y="${MARGIN.top + layer * CELL}" width="${CELL - 1}" ` +
          `height="${CELL - 1}" fill="${precisionColors[precision]}"><title>step ${step}, layer ${layer}: ` +
          `${precision}</title></rect>`,
      );
    }
  }
  const bottom = MARGIN.top + layers * CELL;
  const legend = [...used].map((precision, i) => {
    const x = MARGIN.left + i * LEGEND;
    return (
      `<rect x="${x}" y="${bottom + 24}" width="12" height="12" fill="${precisionColors[precision]}"/>` +
      `<text x="${x + 16}" y="${bottom + 34}">${precision}</text>`
    );
  });
  const width = MARGIN.left + Math.max(steps * CELL, used.size * LEGEND) + 8;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${bottom + MARGIN.bottom}" ` +
      'font-family="system-ui, sans-serif" font-size="11">',
    `<text x="${MARGIN.left - 6}" y="${MARGIN.top + 13}" text-anchor="end">layer 0</text>`,
    ...cells,
    `<text x="${MARGIN.left}" y="${bottom + 14}">step 0</text>`,
    ...(steps > 4
      ? [
          `<text x="${MARGIN.left + steps * CELL}" y="${bottom + 14}" text-anchor="end">step ${steps - 1}</text>`,
        ]
      : []),
    ...legend,
    '</svg>',
  ].join('\n');
}
