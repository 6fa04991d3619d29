import type { InferenceSession } from 'onnxruntime-common';
import type { Feeds } from './feeds.js';
import type { SessionReport } from './report.js';
import { type Fetches, type MxattnRunOptions, runArguments } from './run-options.js';
import type { MxattnSession } from './types.js';

/** A session of ONNX Runtime itself, with the report. */
export class StockSession implements MxattnSession {
  constructor(
    protected readonly session: InferenceSession,
    readonly report: SessionReport,
  ) {}

  get inputNames() {
    return this.session.inputNames;
  }

  get outputNames() {
    return this.session.outputNames;
  }

  get inputMetadata() {
    return this.session.inputMetadata;
  }

  get outputMetadata() {
    return this.session.outputMetadata;
  }

  async run(
    feeds: Feeds,
    fetchesOrOptions?: Fetches | MxattnRunOptions,
    maybeOptions?: MxattnRunOptions,
  ): Promise<InferenceSession.ReturnType> {
    const { names, targets, options } = runArguments(this.outputNames, fetchesOrOptions, maybeOptions);
    const { step, steps, phase, ...stock } = options;
    const fetches = Object.fromEntries(names.map((name) => [name, targets.get(name) ?? null]));
    return this.session.run(feeds, fetches, stock);
  }

  release() {
    return this.session.release();
  }

  startProfiling() {
    this.session.startProfiling();
  }

  endProfiling() {
    this.session.endProfiling();
  }
}
