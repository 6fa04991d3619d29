import { byId } from './elements.js';

const loading = byId('loading', HTMLProgressElement);
const working = byId('working', HTMLProgressElement);
const status = byId('status', HTMLElement);

/** The two bars and the line below them, which screen readers speak. */
export const progress = {
  /** Part of a model that has arrived, 0 to 1. */
  load(part: number): void {
    loading.value = part;
  },

  work(done: number, total: number): void {
    working.max = total;
    working.value = done;
  },

  say(text: string): void {
    status.textContent = text;
  },
};
