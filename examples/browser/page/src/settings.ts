import type { PrecisionName } from '@mxattn/core';
import { byId, control } from './elements.js';
import { fromText, presetCells, stretch, toSchedule, toText, type Unit } from './presets.js';
import { legend, Strip } from './strip.js';
import type { Variant } from './variants.js';

/** The form: what to run, and the schedule with its three views, a list of presets, a text and a strip. */
export class Settings {
  private readonly preset: HTMLSelectElement;
  private readonly text: HTMLInputElement;
  private readonly strip: Strip;

  /**
   * @param layers Of the text model.
   * @param onError Called with what is wrong with a schedule that was typed in, or null.
   */
  constructor(
    private readonly form: HTMLFormElement,
    private readonly layers: number,
    onError: (error: unknown) => void,
  ) {
    this.preset = control(form, 'preset', HTMLSelectElement);
    this.text = control(form, 'schedule', HTMLInputElement);
    this.strip = new Strip(byId('strip', HTMLElement), () => this.edited());
    byId('legend', HTMLElement).replaceChildren(...legend());
    const typed = this.text.value;
    this.refresh();
    const read = (text: string) => {
      try {
        this.show(fromText(text, this.unit, this.count));
        this.preset.value = 'custom';
        onError(null);
      } catch (error) {
        onError(error);
      }
    };
    if (typed) read(typed);
    this.text.addEventListener('change', () => read(this.text.value));
    this.preset.addEventListener('change', () => this.refresh());
    control(form, 'steps', HTMLInputElement).addEventListener('change', () => this.refresh());
    for (const radio of form.querySelectorAll('input[name=model]')) {
      radio.addEventListener('change', () => this.refresh());
    }
  }

  get model(): 'text' | 'image' {
    return this.value('model') === 'image' ? 'image' : 'text';
  }

  value(name: string): string {
    const value = new FormData(this.form).get(name);
    return typeof value === 'string' ? value.trim() : '';
  }

  number(name: string): number {
    return control(this.form, name, HTMLInputElement).valueAsNumber;
  }

  get variants(): Variant[] {
    const cells = this.strip.precisions;
    const plan = toText(cells);
    const all: Variant[] = [
      { name: 'stock', title: 'Full precision', schedule: null },
      { name: 'schedule', title: this.title(plan), schedule: toSchedule(cells, this.unit) },
      { name: 'mxfp4', title: 'MXFP4', schedule: { default: 'mxfp4' } },
    ];
    const names = { stock: 'stock', schedule: 'scheduled', mxfp4: 'mxfp4' } as const;
    return all.filter(({ name }) => control(this.form, names[name], HTMLInputElement).checked);
  }

  private get unit(): Unit {
    return this.model === 'text' ? 'layer' : 'step';
  }

  private get count(): number {
    const steps = Math.round(this.number('steps'));
    return this.unit === 'layer' ? this.layers : Math.min(100, Math.max(1, steps || 1));
  }

  private title(plan: string): string {
    return this.preset.value === 'hybrid' ? `Hybrid, ${plan}` : `Schedule ${plan}`;
  }

  private refresh(): void {
    for (const part of this.form.querySelectorAll<HTMLFieldSetElement>('fieldset[data-model]')) {
      part.hidden = part.dataset.model !== this.model;
      // What is hidden need not be valid; `steps` stays readable.
      part.disabled = part.hidden;
    }
    byId('strip-unit', HTMLElement).textContent = this.unit;
    byId('working-label', HTMLElement).textContent = this.unit === 'layer' ? 'Tokens' : 'Steps';
    const { value } = this.preset;
    const before = this.strip.precisions;
    this.show(
      value === 'custom' && before.length > 0
        ? stretch(before, this.count)
        : presetCells(value === 'custom' ? 'hybrid' : value, this.unit, this.count),
    );
  }

  private show(cells: readonly PrecisionName[]): void {
    this.strip.show(cells, this.unit);
    this.text.value = toText(cells);
  }

  private edited(): void {
    this.preset.value = 'custom';
    this.text.value = toText(this.strip.precisions);
  }
}
