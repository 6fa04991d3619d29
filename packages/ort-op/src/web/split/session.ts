import { MxattnError, type Schedule } from '@mxattn/core';
import type * as Ort from 'onnxruntime-common';
import { DataType, type ModelProto, modelInputs, modelOutputs } from '../../model/index.js';
import { writeModel } from '../../model/read.js';
import { operands, type Segment, segmentModel } from '../../rewrite/index.js';
import type { Feeds } from '../../session/feeds.js';
import { valueMetadata } from '../../session/metadata.js';
import { layerPrecisionNames } from '../../session/precision.js';
import type { SessionReport } from '../../session/report.js';
import { type Fetches, type MxattnRunOptions, runArguments } from '../../session/run-options.js';
import type { MxattnSession } from '../../session/types.js';
import type { SplitAttention } from './attention.js';

/** What a split session is made of. */
export interface SplitParts {
  /** Opens a segment in the runtime. */
  readonly create: (
    model: Uint8Array,
    locations: Ort.InferenceSession.SessionOptions['preferredOutputLocation'],
  ) => Promise<Ort.InferenceSession>;
  readonly attention: SplitAttention;
  readonly plan: Schedule;
  /** Where the caller wants the model's outputs; default `cpu`. */
  readonly preferredOutputLocation?: Ort.InferenceSession.SessionOptions['preferredOutputLocation'];
}

interface OpenSegment extends Segment {
  /** Undefined for a segment in which there is nothing to compute. */
  readonly session: Ort.InferenceSession | undefined;
  /** Values that nothing needs once this segment and its attentions are computed. */
  readonly spent: readonly string[];
}

/** A model cut at its attentions: segments run in ONNX Runtime, and this package's kernels attend between them. */
export class SplitSession implements MxattnSession {
  readonly inputNames: readonly string[];
  readonly outputNames: readonly string[];
  readonly inputMetadata: Ort.InferenceSession['inputMetadata'];
  readonly outputMetadata: Ort.InferenceSession['outputMetadata'];
  private readonly layers: number;
  /** Runs wait for each other: onnxruntime-web takes one at a time. */
  private last: Promise<unknown> = Promise.resolve();

  private constructor(
    model: ModelProto,
    private readonly segments: readonly OpenSegment[],
    private readonly parts: SplitParts,
    readonly report: SessionReport,
  ) {
    const inputs = segments.flatMap((segment) => segment.inputs);
    const signatures = modelInputs(model).filter(({ name }) => inputs.includes(name));
    const results = modelOutputs(model);
    this.inputNames = signatures.map(({ name }) => name);
    this.outputNames = results.map(({ name }) => name);
    this.inputMetadata = signatures.map(valueMetadata);
    this.outputMetadata = results.map(valueMetadata);
    this.layers = segments.reduce((sum, { attentions }) => sum + attentions.length, 0);
  }

  /**
   * Opens a converted model (target `fused`).
   *
   * @throws MxattnError if it cannot be cut, see {@link segmentModel}.
   */
  static async open(model: ModelProto, parts: SplitParts, report: SessionReport): Promise<SplitSession> {
    const segments = segmentModel(model);
    const results = new Set(model.graph!.output.map(({ name }) => name));
    const crossing = new Set(segments.flatMap(({ attentions }) => attentions.flatMap(operands)));
    const opened: OpenSegment[] = [];
    try {
      for (const [at, segment] of segments.entries()) {
        const locations: Record<string, Ort.Tensor.DataLocation> = {};
        for (const [name, type] of segment.outputs) {
          const passed = crossing.has(name) || isFloat(type);
          if (results.has(name)) locations[name] = wanted(parts.preferredOutputLocation, name);
          else locations[name] = passed ? parts.attention.location : 'cpu';
        }
        const session =
          segment.outputs.size === 0 ? undefined : await parts.create(writeModel(segment.model), locations);
        opened.push({ ...segment, session, spent: spentAfter(segments, at, results) });
      }
    } catch (error) {
      await Promise.all(opened.map(({ session }) => session?.release()));
      throw error;
    }
    return new SplitSession(model, opened, parts, report);
  }

  run(
    feeds: Feeds,
    fetchesOrOptions?: Fetches | MxattnRunOptions,
    maybeOptions?: MxattnRunOptions,
  ): Promise<Ort.InferenceSession.ReturnType> {
    const running = this.last.then(() => this.runAlone(feeds, fetchesOrOptions, maybeOptions));
    // The next run starts whatever becomes of this one.
    this.last = running.catch(() => undefined);
    return running;
  }

  async release(): Promise<void> {
    await this.last;
    for (const { session } of this.segments) await session?.release();
    this.parts.attention.release();
  }

  startProfiling(): void {
    for (const { session } of this.segments) session?.startProfiling();
  }

  endProfiling(): void {
    for (const { session } of this.segments) session?.endProfiling();
  }

  private async runAlone(
    feeds: Feeds,
    fetchesOrOptions?: Fetches | MxattnRunOptions,
    maybeOptions?: MxattnRunOptions,
  ): Promise<Ort.InferenceSession.ReturnType> {
    const { names, targets, options } = runArguments(this.outputNames, fetchesOrOptions, maybeOptions);
    if (targets.size > 0) {
      throw new MxattnError(
        `a split session makes its outputs anew; fetch ${[...targets.keys()].join(', ')} by name`,
      );
    }
    checkNames(this.inputNames, feeds);
    const precisions = layerPrecisionNames(this.parts.plan, this.layers, feeds, options);
    const { step, steps, phase, ...stock } = options;
    const values = new Map<string, Ort.Tensor>();
    const made = new Set<string>();
    try {
      for (const segment of this.segments) {
        if (segment.session) {
          const needed = segment.inputs.map((name) => [name, values.get(name) ?? feeds[name]!] as const);
          const outputs = await segment.session.run(Object.fromEntries(needed), stock);
          for (const [name, tensor] of Object.entries(outputs)) {
            values.set(name, tensor);
            made.add(name);
          }
        }
        for (const each of segment.attentions) {
          const operand = (name: string) => values.get(name) ?? feeds[name]!;
          const bias = each.bias === undefined ? {} : { bias: operand(each.bias) };
          const read = {
            query: operand(each.query),
            key: operand(each.key),
            value: operand(each.value),
            ...bias,
          };
          values.set(each.output, await this.parts.attention.compute(each, read, precisions[each.layer]!));
          made.add(each.output);
        }
        for (const name of segment.spent) {
          if (made.delete(name)) values.get(name)?.dispose();
          values.delete(name);
        }
      }
      for (const name of names) made.delete(name);
      return Object.fromEntries(names.map((name) => [name, values.get(name) ?? feeds[name]!]));
    } finally {
      for (const name of made) values.get(name)?.dispose();
    }
  }
}

/** What is read for the last time by a segment or its attentions, and is no result. */
function spentAfter(segments: readonly Segment[], at: number, results: ReadonlySet<string>): string[] {
  const reads = ({ inputs, attentions }: Segment) => [...inputs, ...attentions.flatMap(operands)];
  const later = new Set(segments.slice(at + 1).flatMap(reads));
  const read = new Set(reads(segments[at]!));
  return [...read].filter((name) => !later.has(name) && !results.has(name));
}

function wanted(
  locations: Ort.InferenceSession.SessionOptions['preferredOutputLocation'],
  name: string,
): Ort.Tensor.DataLocation {
  return (typeof locations === 'string' ? locations : locations?.[name]) ?? 'cpu';
}

function isFloat(type: DataType | undefined): boolean {
  return type === DataType.FLOAT || type === DataType.FLOAT16;
}

function checkNames(inputNames: readonly string[], feeds: Feeds): void {
  const missing = inputNames.filter((name) => !feeds[name]);
  const unknown = Object.keys(feeds).filter((name) => !inputNames.includes(name));
  if (missing.length > 0)
    throw new MxattnError(`input "${missing[0]}" is missing; the inputs are ${inputNames.join(', ')}`);
  if (unknown.length > 0) {
    throw new MxattnError(`the model has no input "${unknown[0]}"; its inputs are ${inputNames.join(', ')}`);
  }
}
