import { MxattnError, type Schedule } from '@mxattn/core';
import type { InferenceSession } from 'onnxruntime-common';
import type { Feeds } from '../session/feeds.js';
import { layerPrecisionNames } from '../session/precision.js';
import type { SessionReport } from '../session/report.js';
import { type Fetches, type MxattnRunOptions, runArguments } from '../session/run-options.js';
import { StockSession } from '../session/stock-session.js';
import type { DispatchCounts, InplaceAttention } from './inplace-attention.js';

/** Runs that wait for each other: onnxruntime-web takes one at a time. */
const queues = new WeakMap<InplaceAttention, Promise<unknown>>();

/** A session of onnxruntime-web whose attention runs on this package's kernels, inside ONNX Runtime's runs. */
export class InplaceSession extends StockSession {
  private counts: { inPlace: number; left: Record<string, number> } = { inPlace: 0, left: {} };

  constructor(
    session: InferenceSession,
    private readonly attention: InplaceAttention,
    private readonly plan: Schedule,
    private readonly layers: number,
    report: SessionReport,
  ) {
    super(session, report);
  }

  /** Where the attentions of the runs so far were computed. */
  get dispatches(): DispatchCounts {
    return this.counts;
  }

  override async run(
    feeds: Feeds,
    fetchesOrOptions?: Fetches | MxattnRunOptions,
    maybeOptions?: MxattnRunOptions,
  ): Promise<InferenceSession.ReturnType> {
    const { options } = runArguments(this.outputNames, fetchesOrOptions, maybeOptions);
    const precisions = layerPrecisionNames(this.plan, this.layers, feeds, options);
    const before = queues.get(this.attention) ?? Promise.resolve();
    const running = before.then(async () => {
      const start = this.attention.counts;
      this.attention.begin({ precisions });
      try {
        return await super.run(feeds, fetchesOrOptions, maybeOptions);
      } finally {
        this.attention.end();
        this.count(start, this.attention.counts, precisions);
      }
    });
    // The next run starts whatever becomes of this one.
    queues.set(
      this.attention,
      running.catch(() => undefined),
    );
    return running;
  }

  private count(start: DispatchCounts, now: DispatchCounts, precisions: readonly string[]): void {
    let dispatched = now.inPlace - start.inPlace;
    this.counts.inPlace += dispatched;
    for (const [reason, count] of Object.entries(now.left)) {
      const added = count - (start.left[reason] ?? 0);
      if (added === 0) continue;
      dispatched += added;
      this.counts.left[reason] = (this.counts.left[reason] ?? 0) + added;
    }
    // Layers are told apart by the order of their dispatches alone.
    if (dispatched > 0 && dispatched !== this.layers && new Set(precisions).size > 1) {
      throw new MxattnError(
        `the schedule differs by layer, but ONNX Runtime ran ${dispatched} of ${this.layers} attentions with the ` +
          'program that can be replaced, so that layers cannot be told apart; use one precision for all layers',
      );
    }
  }
}
