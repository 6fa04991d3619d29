/** Sets controls from the page's address: `?model=image&steps=2&word1=blue`. */
export function applyQuery(form: HTMLFormElement): void {
  for (const [name, value] of new URLSearchParams(location.search)) {
    const element = form.elements.namedItem(name);
    if (element instanceof HTMLInputElement && element.type === 'checkbox') element.checked = value !== '0';
    else if (
      element instanceof HTMLInputElement ||
      element instanceof HTMLSelectElement ||
      element instanceof RadioNodeList
    ) {
      element.value = value;
    }
  }
}
