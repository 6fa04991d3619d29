import { byId } from './elements.js';

/** Shows what went wrong; null hides it. */
export function showError(error: unknown): void {
  const line = byId('error', HTMLElement);
  line.hidden = error === null;
  line.textContent = error === null ? '' : error instanceof Error ? error.message : String(error);
}
