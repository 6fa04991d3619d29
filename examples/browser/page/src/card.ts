import type { SessionReport } from '@mxattn/ort-op/web';
import { make } from './elements.js';
import { reportList } from './report.js';
import { milliseconds } from './timing.js';
import type { Variant } from './variants.js';

/** Where the result of one variant is shown. */
export class Card {
  readonly root: HTMLElement;
  private readonly facts = make('dl');

  constructor({ name, title }: Variant, output: HTMLElement) {
    this.root = make('article', {}, make('h3', {}, title), output, this.facts);
    this.root.dataset.variant = name;
    this.root.ariaBusy = 'true';
  }

  fact(name: string, value: string): void {
    this.facts.append(make('dt', {}, name), make('dd', {}, value));
  }

  /** Time of a token or step, and how many times faster than full precision. */
  time(unit: string, ms: number | undefined, stock: number | undefined): void {
    if (ms === undefined) return;
    this.fact(`Time per ${unit}`, milliseconds(ms));
    if (stock !== undefined) this.fact('Speed-up', `${(stock / ms).toFixed(2)}×`);
  }

  report(report: SessionReport): void {
    this.root.dataset.backend = report.backend;
    this.root.dataset.replaced = String(report.replaced.length);
    this.root.append(reportList(report));
  }

  done(): void {
    this.root.ariaBusy = 'false';
  }
}
