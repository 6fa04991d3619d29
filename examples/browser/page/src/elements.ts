/** An element of the page by its id. */
export function byId<E extends Element>(id: string, kind: new () => E): E {
  const element = document.getElementById(id);
  if (!(element instanceof kind)) throw new Error(`the page has no ${kind.name} "${id}"`);
  return element;
}

/** A control of the form by its name. */
export function control<E extends Element>(form: HTMLFormElement, name: string, kind: new () => E): E {
  const element = form.elements.namedItem(name);
  if (!(element instanceof kind)) throw new Error(`the form has no ${kind.name} "${name}"`);
  return element;
}

/** A new element with text or children in it. */
export function make<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  properties: Partial<HTMLElementTagNameMap[K]> = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}
