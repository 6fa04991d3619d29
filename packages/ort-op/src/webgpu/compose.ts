import { sources } from './wgsl/sources.js';

/** A piece of WGSL in the directory `wgsl`. */
export type Piece = keyof typeof sources;

/** Constants of a kernel: numbers become WGSL constants, and `#if` asks whether any is set. */
export type Constants = Readonly<Record<string, number | boolean>>;

/** How to write a kernel's loops that are marked with `#unroll`. */
export interface ComposeOptions {
  /** Repeat their bodies, so that arrays they index become registers; else they stay loops, quick to compile. */
  readonly unroll: boolean;
  /** Extensions to enable and diagnostics to switch off, as WGSL. */
  readonly directives?: string;
}

/**
 * One WGSL module of pieces, with a few lines that WGSL does not have:
 * - `#if NAME`, `#if !NAME`, `#else`, `#endif` leave lines out,
 * - `#unroll i COUNT`, `#end` repeat lines with a constant i from 0 to COUNT - 1. COUNT is a product or quotient of
 *   numbers and constants, those of WGSL included. Lines that hold `$i` are repeated with the number in its place, in the
 *   scope around them, so that they can declare variables; they have no form as a loop.
 * - `#block NAME`, `#endblock` set lines aside, `#use NAME` puts them in.
 */
export function compose(pieces: readonly Piece[], constants: Constants, options: ComposeOptions): string {
  const numbers = Object.entries(constants).filter((entry): entry is [string, number] => {
    return typeof entry[1] === 'number';
  });
  const header = numbers.map(([name, value]) => `const ${name} = ${literal(name, value)};`);
  const known = new Map<string, number>(numbers);
  const lines = withBlocks(
    chosenLines(
      pieces.map((piece) => sources[piece]),
      constants,
    ),
  );
  for (const line of lines) {
    const [, name, value] = /^const (\w+) = ([\w */]+);/.exec(line) ?? [];
    if (name !== undefined && value !== undefined) known.set(name, count(value, known));
  }
  const body = options.unroll ? unrolled(lines, known) : looped(lines);
  return [options.directives ?? '', ...header, ...body].join('\n');
}

/** Names of floats end so, as every other number counts something. */
const FLOATS = /^(STEPS|LARGEST|HADAMARD_NORM)$/;

function literal(name: string, value: number): string {
  return FLOATS.test(name) ? `${value}f` : `${value}u`;
}

function count(expression: string, known: ReadonlyMap<string, number>): number {
  const value = (term: string) => known.get(term) ?? Number.parseInt(term, 10);
  const terms = expression.trim().split(/\s*([*/])\s*/);
  let result = value(terms[0]!);
  for (let i = 1; i < terms.length; i += 2) {
    const operand = value(terms[i + 1]!);
    result = terms[i] === '*' ? result * operand : result / operand;
  }
  return result;
}

function chosenLines(texts: readonly string[], constants: Constants): string[] {
  const kept: string[] = [];
  // One entry for each open `#if`, true where its lines count.
  const open: boolean[] = [];
  for (const line of texts.join('\n').split('\n')) {
    const [, directive, name = ''] = /^\s*#(if|else|endif)\s*(.*)$/.exec(line) ?? [];
    if (directive === 'if')
      open.push(name.startsWith('!') ? !constants[name.slice(1)] : Boolean(constants[name]));
    else if (directive === 'else') open.push(!open.pop());
    else if (directive === 'endif') open.pop();
    else if (!open.includes(false)) kept.push(line);
  }
  return kept;
}

function withBlocks(lines: readonly string[]): string[] {
  const blocks = new Map<string, string[]>();
  const kept: string[] = [];
  let target = kept;
  for (const line of lines) {
    const [, directive, name = ''] = /^\s*#(block|endblock|use)\s*(.*)$/.exec(line) ?? [];
    if (directive === 'block') {
      target = [];
      blocks.set(name, target);
    } else if (directive === 'endblock') target = kept;
    else if (directive === 'use') target.push(...(blocks.get(name) ?? []));
    else target.push(line);
  }
  return kept;
}

interface UnrollHead {
  readonly name: string;
  readonly expression: string;
}

function unrollHead(line: string): UnrollHead | undefined {
  const [, name, expression] = /^\s*#unroll (\w+) (.+)$/.exec(line) ?? [];
  return name !== undefined && expression !== undefined ? { name, expression } : undefined;
}

function isEnd(line: string): boolean {
  return line.trim() === '#end';
}

function looped(lines: readonly string[]): string[] {
  return lines.map((line) => {
    const head = unrollHead(line);
    if (head) return `for (var ${head.name} = 0u; ${head.name} < ${head.expression}; ${head.name}++) {`;
    return isEnd(line) ? '}' : line;
  });
}

function unrolled(lines: readonly string[], known: ReadonlyMap<string, number>): string[] {
  const result: string[] = [];
  for (let i = 0; i < lines.length; i++) {
    const head = unrollHead(lines[i]!);
    if (!head) {
      result.push(lines[i]!);
      continue;
    }
    const end = matchingEnd(lines, i);
    const body = unrolled(lines.slice(i + 1, end), known);
    const named = body.some((line) => line.includes(`$${head.name}`));
    for (let step = 0; step < count(head.expression, known); step++) {
      if (named) result.push(...body.map((line) => line.replaceAll(`$${head.name}`, `${step}`)));
      else result.push('{', `const ${head.name} = ${step}u;`, ...body, '}');
    }
    i = end;
  }
  return result;
}

function matchingEnd(lines: readonly string[], start: number): number {
  let depth = 0;
  for (let i = start; i < lines.length; i++) {
    if (unrollHead(lines[i]!)) depth++;
    if (isEnd(lines[i]!) && --depth === 0) return i;
  }
  throw new Error('an #unroll has no #end');
}
