import { MxattnError } from '../errors.js';
import { isPrecisionName, type PrecisionName, recipes } from '../precision/recipes.js';

/** The two phases of text generation: the whole prompt at once, then token by token. */
export type Phase = 'prefill' | 'decode';

/** Where in a run an attention is computed. Indices start at 0; what is not known is left out. */
export interface SchedulePosition {
  /** Denoising step. */
  readonly step?: number;
  /** Steps of the run; default the schedule's own. */
  readonly steps?: number;
  readonly layer?: number;
  /** Attention layers of the model. */
  readonly layers?: number;
  readonly phase?: Phase;
  /** Place in its sequence of the first token that the run computes: the tokens that the cache holds. */
  readonly token?: number;
}

/** First and last index, both inclusive; negative ones count from the end, -1 being the last. */
export type IndexRange = readonly [first: number, last: number];

/** A precision for the positions that fulfil every condition of the rule. */
export interface ScheduleRule {
  readonly steps?: IndexRange;
  readonly layers?: IndexRange;
  readonly phase?: Phase;
  /** Places in the sequence, from 0; a run counts as the place of its first token. Not counted from the end. */
  readonly tokens?: IndexRange;
  readonly precision: PrecisionName;
}

/** The JSON form of a schedule. The first rule that holds decides, else the default. */
export interface ScheduleJson {
  readonly default: PrecisionName;
  /** Steps of a run, if the schedule is made for one number. */
  readonly steps?: number;
  readonly rules?: readonly ScheduleRule[];
}

/** Maps the steps, layers and phases of a run to precisions. Immutable; made by {@link schedule}. */
export class Schedule {
  readonly default: PrecisionName;
  readonly steps: number | null;
  readonly rules: readonly ScheduleRule[];

  /** @throws MxattnError naming the part of the JSON that is wrong. */
  constructor(json: ScheduleJson) {
    checkKeys('schedule', json, ['default', 'steps', 'rules']);
    this.default = checkPrecision('default', json.default);
    this.steps = json.steps ?? null;
    if (this.steps !== null && !(Number.isInteger(this.steps) && this.steps > 0)) {
      throw new MxattnError(`schedule: steps is ${this.steps}, expected a positive integer`);
    }
    const rules: unknown = json.rules ?? [];
    if (!Array.isArray(rules)) throw new MxattnError('schedule: rules is no array');
    this.rules = rules.map((rule: ScheduleRule, i) => checkRule(`rules[${i}]`, rule, this.steps));
  }

  /** Whether a precision depends on the denoising step. */
  get needsStep(): boolean {
    return this.rules.some((rule) => rule.steps);
  }

  /** Every precision that the schedule may give. */
  get precisions(): PrecisionName[] {
    return [...new Set([this.default, ...this.rules.map((rule) => rule.precision)])];
  }

  /**
   * The precision at a position.
   *
   * @throws MxattnError naming what the schedule needs to know and the position leaves out, or an index that
   *   is out of range.
   */
  precisionAt(position: SchedulePosition = {}): PrecisionName {
    const steps = position.steps ?? this.steps ?? undefined;
    checkIndex('step', position.step, steps);
    checkIndex('layer', position.layer, position.layers);
    checkIndex('token', position.token, undefined);
    const rule = this.rules.find(
      (rule) =>
        holdsPhase(rule.phase, position.phase) &&
        holdsRange('token', rule.tokens, position.token, undefined) &&
        holdsRange('layer', rule.layers, position.layer, position.layers) &&
        holdsRange('step', rule.steps, position.step, steps),
    );
    return rule ? rule.precision : this.default;
  }

  /** The JSON form. */
  toJSON(): ScheduleJson {
    return {
      default: this.default,
      ...(this.steps === null ? {} : { steps: this.steps }),
      ...(this.rules.length > 0 ? { rules: this.rules } : {}),
    };
  }

  /**
   * The string form: a precision's name, or `3:mxfp6/14:mxfp4/3:mxfp6` for a schedule over a fixed number of
   * steps. A schedule with other rules gives its JSON text. {@link schedule} reads all three.
   */
  toString(): string {
    if (this.rules.length === 0 && this.steps === null) return this.default;
    const stepsOnly = this.rules.every((rule) => rule.steps && !rule.layers && !rule.phase && !rule.tokens);
    if (!stepsOnly || this.steps === null) return JSON.stringify(this);
    return segments(Array.from({ length: this.steps }, (_, step) => this.precisionAt({ step })))
      .map(({ count, precision }) => `${count}:${precision}`)
      .join('/');
  }
}

/** Runs of equal precisions. */
export function segments(
  precisions: readonly PrecisionName[],
): { first: number; count: number; precision: PrecisionName }[] {
  const result: { first: number; count: number; precision: PrecisionName }[] = [];
  precisions.forEach((precision, first) => {
    const last = result.at(-1);
    if (last?.precision === precision) last.count++;
    else result.push({ first, count: 1, precision });
  });
  return result;
}

function holdsPhase(wanted: Phase | undefined, phase: Phase | undefined): boolean {
  if (!wanted) return true;
  if (!phase) throw new MxattnError('this schedule depends on the phase: pass prefill or decode');
  return wanted === phase;
}

const remedies = {
  step: 'pass run(feeds, { step })',
  layer: 'pass the layer',
  token: 'pass the token',
} as const;

function holdsRange(
  name: keyof typeof remedies,
  range: IndexRange | undefined,
  index: number | undefined,
  count: number | undefined,
): boolean {
  if (!range) return true;
  if (index === undefined) {
    throw new MxattnError(`this schedule depends on the ${name}: ${remedies[name]}`);
  }
  const [first, last] = range.map((bound) => {
    if (bound >= 0) return bound;
    if (count === undefined) {
      throw new MxattnError(`this schedule counts ${name}s from the end: pass the number of ${name}s`);
    }
    return count + bound;
  }) as [number, number];
  return first <= index && index <= last;
}

function checkIndex(name: string, index: number | undefined, count: number | undefined): void {
  if (index === undefined) return;
  if (!Number.isInteger(index) || index < 0 || (count !== undefined && index >= count)) {
    const range = count === undefined ? 'an integer >= 0' : `0 to ${count - 1}`;
    throw new MxattnError(`schedule: ${name} is ${index}, expected ${range}`);
  }
}

function checkKeys(where: string, value: unknown, known: readonly string[]): void {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new MxattnError(`${where} is ${JSON.stringify(value)}, expected an object`);
  }
  const unknown = Object.keys(value).find((key) => !known.includes(key));
  if (unknown !== undefined) {
    throw new MxattnError(`${where}: unknown key "${unknown}"; known: ${known.join(', ')}`);
  }
}

function checkPrecision(where: string, name: unknown): PrecisionName {
  if (typeof name === 'string' && isPrecisionName(name)) return name;
  const known = Object.keys(recipes).join(', ');
  throw new MxattnError(`schedule: ${where} is ${JSON.stringify(name)}, expected a precision: ${known}`);
}

function checkRange(where: string, range: unknown, count: number | null): IndexRange {
  const bounds: unknown[] = Array.isArray(range) ? range : [];
  const [first, last] = bounds;
  if (bounds.length !== 2 || !Number.isInteger(first) || !Number.isInteger(last)) {
    throw new MxattnError(`schedule: ${where} is ${JSON.stringify(range)}, expected [first, last]`);
  }
  const result = [first, last] as [number, number];
  const [from, to] = count === null ? result : result.map((bound) => (bound < 0 ? count + bound : bound));
  const comparable = count !== null || result[0] < 0 === result[1] < 0;
  if (comparable && from! > to!) {
    throw new MxattnError(`schedule: ${where} is ${JSON.stringify(range)}, which is empty`);
  }
  if (count !== null && (from! < 0 || to! >= count)) {
    throw new MxattnError(`schedule: ${where} is ${JSON.stringify(range)}, beyond ${count} steps`);
  }
  return result;
}

function checkRule(where: string, rule: ScheduleRule, steps: number | null): ScheduleRule {
  checkKeys(`schedule: ${where}`, rule, ['steps', 'layers', 'phase', 'tokens', 'precision']);
  if (rule.phase !== undefined && rule.phase !== 'prefill' && rule.phase !== 'decode') {
    throw new MxattnError(
      `schedule: ${where}.phase is ${JSON.stringify(rule.phase)}, expected prefill or decode`,
    );
  }
  const tokens = rule.tokens === undefined ? undefined : checkRange(`${where}.tokens`, rule.tokens, null);
  if (tokens && tokens[0] < 0) {
    throw new MxattnError(
      `schedule: ${where}.tokens is ${JSON.stringify(tokens)}, but a sequence has no end`,
    );
  }
  return {
    ...(rule.steps === undefined ? {} : { steps: checkRange(`${where}.steps`, rule.steps, steps) }),
    ...(rule.layers === undefined ? {} : { layers: checkRange(`${where}.layers`, rule.layers, null) }),
    ...(rule.phase === undefined ? {} : { phase: rule.phase }),
    ...(tokens ? { tokens } : {}),
    precision: checkPrecision(`${where}.precision`, rule.precision),
  };
}
