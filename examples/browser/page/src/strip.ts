import { type PrecisionName, precisionColors } from '@mxattn/core';
import { make } from './elements.js';
import { CHOICES, type Unit } from './presets.js';

/** The schedule as coloured buttons, one of which is in the tab order; arrow keys go to the others. */
export class Strip {
  private cells: PrecisionName[] = [];
  private unit: Unit = 'step';

  /** @param onEdit Called after the visitor changed a cell. */
  constructor(
    private readonly root: HTMLElement,
    private readonly onEdit: () => void,
  ) {
    root.addEventListener('click', (event) => this.click(event));
    root.addEventListener('keydown', (event) => this.move(event));
  }

  get precisions(): readonly PrecisionName[] {
    return this.cells;
  }

  show(cells: readonly PrecisionName[], unit: Unit): void {
    this.cells = [...cells];
    this.unit = unit;
    this.root.replaceChildren(
      ...cells.map((_, i) => make('button', { type: 'button', tabIndex: i === 0 ? 0 : -1 })),
    );
    for (const index of cells.keys()) this.paint(index);
  }

  private paint(index: number): void {
    const button = this.root.children[index] as HTMLButtonElement;
    const precision = this.cells[index]!;
    button.dataset.precision = precision;
    button.textContent = precision.replace('mxfp', 'fp');
    button.ariaLabel = `${this.unit} ${index + 1} of ${this.cells.length}: ${precision}`;
    button.style.background = precisionColors[precision];
    button.style.color = isDark(precisionColors[precision]) ? '#ffffff' : '#0b1214';
  }

  private click(event: MouseEvent): void {
    const index = this.indexOf(event.target);
    if (index < 0) return;
    this.focus(index);
    const now = CHOICES.indexOf(this.cells[index] as (typeof CHOICES)[number]);
    const next = now + (event.shiftKey ? CHOICES.length - 1 : 1);
    this.cells[index] = CHOICES[next % CHOICES.length]!;
    this.paint(index);
    this.onEdit();
  }

  private move(event: KeyboardEvent): void {
    const index = this.indexOf(event.target);
    const last = this.cells.length - 1;
    const targets: Partial<Record<string, number>> = {
      ArrowLeft: Math.max(0, index - 1),
      ArrowRight: Math.min(last, index + 1),
      Home: 0,
      End: last,
    };
    const target = targets[event.key];
    if (index < 0 || target === undefined) return;
    event.preventDefault();
    this.focus(target);
  }

  private focus(index: number): void {
    [...this.root.children].forEach((button, i) => {
      (button as HTMLButtonElement).tabIndex = i === index ? 0 : -1;
    });
    (this.root.children[index] as HTMLButtonElement).focus();
  }

  private indexOf(target: EventTarget | null): number {
    return target instanceof HTMLButtonElement ? [...this.root.children].indexOf(target) : -1;
  }
}

/** What the colours mean. */
export function legend(): HTMLLIElement[] {
  return CHOICES.map((precision) => {
    const sample = make('span');
    sample.style.background = precisionColors[precision];
    return make('li', {}, sample, precision);
  });
}

function isDark(color: string): boolean {
  const [r, g, b] = [1, 3, 5].map((at) => Number.parseInt(color.slice(at, at + 2), 16));
  return 0.299 * r! + 0.587 * g! + 0.114 * b! < 140;
}
