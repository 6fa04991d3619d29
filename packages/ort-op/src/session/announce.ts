const announced = new Set<string>();

/** A warning, once per text and process. */
export function announce(text: string): void {
  if (announced.has(text)) return;
  announced.add(text);
  process.emitWarning(text, 'MxattnWarning');
}
