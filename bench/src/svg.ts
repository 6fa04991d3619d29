import * as Plot from '@observablehq/plot';
import { parseHTML } from 'linkedom';

const { document } = parseHTML('<!doctype html><html><body></body></html>');

/** A plot as the text of an SVG file. */
export function svg(options: Plot.PlotOptions): string {
  const element = Plot.plot({
    document: document as unknown as Document,
    width: 760,
    height: 320,
    marginLeft: 48,
    style: { fontFamily: 'system-ui, sans-serif', background: 'white' },
    ...options,
  });
  element.setAttribute('xmlns', 'http://www.w3.org/2000/svg');
  return element.outerHTML;
}
