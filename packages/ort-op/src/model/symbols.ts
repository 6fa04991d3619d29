/**
 * One size of a shape: a number, or a symbol that stands for one number nobody knows before the model runs.
 * Products of symbols are written `a*b`, factors sorted, so that equal products are equal strings.
 */
export type Dim = number | string;

/** One element of a small tensor: known, a size known by its symbol, or unknown. */
export type Scalar = Dim | null;

let symbols = 0;

/** A symbol that equals no other. */
export function freshSymbol(): string {
  symbols += 1;
  return `?${symbols}`;
}

/** The product of sizes. */
export function product(dims: readonly Dim[]): Dim {
  let constant = 1;
  const factors: string[] = [];
  for (const dim of dims) {
    if (typeof dim === 'number') {
      constant *= dim;
      continue;
    }
    for (const factor of dim.split('*')) {
      if (/^\d+$/.test(factor)) constant *= Number(factor);
      else factors.push(factor);
    }
  }
  if (constant === 0 || factors.length === 0) return constant;
  factors.sort();
  return bounded((constant === 1 ? factors : [String(constant), ...factors]).join('*'));
}

/** `dividend / divisor` where it can be told that this is a whole number; undefined elsewhere. */
export function quotient(dividend: Dim, divisor: Dim): Dim | undefined {
  const over = split(dividend);
  const under = split(divisor);
  if (under.constant === 0 || over.constant % under.constant !== 0) return undefined;
  for (const factor of under.factors) {
    const at = over.factors.indexOf(factor);
    if (at < 0) return undefined;
    over.factors.splice(at, 1);
  }
  return product([over.constant / under.constant, ...over.factors]);
}

function split(dim: Dim): { constant: number; factors: string[] } {
  if (typeof dim === 'number') return { constant: dim, factors: [] };
  const factors = dim.split('*');
  const constant = /^\d+$/.test(factors[0] ?? '') ? Number(factors.shift()) : 1;
  return { constant, factors };
}

/** The sum of two sizes. */
export function sum(a: Dim, b: Dim): Dim {
  if (typeof a === 'number' && typeof b === 'number') return a + b;
  if (a === 0) return b;
  if (b === 0) return a;
  return bounded(
    `(${[a, b]
      .map((dim) => String(dim).replaceAll('*', '·'))
      .sort()
      .join('+')})`,
  );
}

/** Symbols of long chains say nothing that a comparison could use. */
function bounded(symbol: string): string {
  return symbol.length > 200 ? freshSymbol() : symbol;
}

/** The size of an axis along which two shapes are broadcast together. */
function broadcastDim(a: Dim, b: Dim): Dim {
  if (a === b || b === 1) return a;
  if (a === 1) return b;
  if (typeof a === 'number') return a;
  if (typeof b === 'number') return b;
  return freshSymbol();
}

/** The shape two shapes broadcast to. */
export function broadcast(a: readonly Dim[], b: readonly Dim[]): Dim[] {
  const rank = Math.max(a.length, b.length);
  return Array.from({ length: rank }, (_, axis) =>
    broadcastDim(a[a.length - rank + axis] ?? 1, b[b.length - rank + axis] ?? 1),
  );
}

/** The size of an axis that must be equal in two shapes, as precisely as either says it. */
export function unify(a: Dim, b: Dim): Dim {
  if (typeof a === 'number') return a;
  if (typeof b === 'number') return b;
  return a.startsWith('?') ? b : a;
}
