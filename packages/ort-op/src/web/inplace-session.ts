import { MxattnError, type PrecisionName, type Schedule } from '@mxattn/core';
import type { InferenceSession } from 'onnxruntime-common';
import type { Feeds } from '../session/feeds.js';
import { layerPrecisionNames } from '../session/precision.js';
import type { SessionReport } from '../session/report.js';
import { type Fetches, type MxattnRunOptions, runArguments } from '../session/run-options.js';
import { StockSession } from '../session/stock-session.js';
import type { NodeFeatures } from './carrier-nodes.js';
import type { DispatchCounts, InplaceAttention, RunPlan } from './inplace-attention.js';

/** What a session in place works with. */
export interface Inplace {
  readonly attention: InplaceAttention;
  readonly plan: Schedule;
  /** The attentions of the model. */
  readonly nodes: readonly NodeFeatures[];
  /** Why ONNX Runtime's own kernel, which computes what is left to it, is wrong on this device; undefined if it is not. */
  readonly fallbackObstacle: () => Promise<string | undefined>;
}

/** A session of onnxruntime-web whose attention runs on this package's kernels, inside ONNX Runtime's runs. */
export class InplaceSession extends StockSession {
  private counts: { inPlace: number; left: Record<string, number> } = { inPlace: 0, left: {} };

  constructor(
    session: InferenceSession,
    private readonly inplace: Inplace,
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
    const precisions = this.precisions(feeds, options);
    const { nodes } = this.inplace;
    return this.inTurn(() =>
      this.recorded({ precisions, nodes }, () => super.run(feeds, fetchesOrOptions, maybeOptions)),
    );
  }

  /** Those of the layers in a run. */
  protected precisions(feeds: Feeds, options: MxattnRunOptions): PrecisionName[] {
    const { plan, nodes } = this.inplace;
    return layerPrecisionNames(plan, nodes.length, feeds, options);
  }

  /** Does something when all earlier runs on the device have ended, however they did. */
  protected inTurn<T>(work: () => Promise<T>): Promise<T> {
    return this.inplace.attention.inTurn(work);
  }

  /** Runs the model with its attentions computed as planned. */
  protected async recorded<T>(run: RunPlan, model: () => Promise<T>): Promise<T> {
    const { attention } = this.inplace;
    const start = attention.counts;
    attention.begin(run);
    const outputs = await model().finally(() => attention.end());
    await this.count(start, attention.counts, run);
    return outputs;
  }

  /** @throws MxattnError where some attention was computed in another way than the session promises. */
  private async count(
    start: DispatchCounts,
    now: DispatchCounts,
    { precisions, packed }: RunPlan,
  ): Promise<void> {
    const { nodes } = this.inplace;
    let dispatched = now.inPlace - start.inPlace;
    this.counts.inPlace += dispatched;
    for (const [reason, count] of Object.entries(now.left)) {
      const added = count - (start.left[reason] ?? 0);
      if (added === 0) continue;
      dispatched += added;
      this.counts.left[reason] = (this.counts.left[reason] ?? 0) + added;
      if (packed) throw new MxattnError(`an attention to a packed cache could not be computed: ${reason}`);
      if (nodes.some(({ softcap }) => softcap !== 0)) {
        throw new MxattnError(
          `an attention was left to ONNX Runtime, which leaves out its soft cap: ${reason}`,
        );
      }
      const wrong = await this.inplace.fallbackObstacle();
      if (wrong) throw new MxattnError(`an attention was left to ONNX Runtime: ${reason}; but ${wrong}`);
    }
    // Layers are told apart by the order of their dispatches alone.
    const differ = new Set(nodes.map(({ softcap, sinks }) => `${softcap} ${sinks}`)).size > 1;
    if (dispatched > 0 && dispatched !== nodes.length && (differ || new Set(precisions).size > 1)) {
      throw new MxattnError(
        `${differ ? 'attentions differ' : 'the schedule differs'} by layer, but ONNX Runtime ran ${dispatched} of ` +
          `${nodes.length} attentions with the program that can be replaced, so that layers cannot be told apart; use ` +
          `${differ ? "backend: 'stock'" : 'one precision for all layers'}`,
      );
    }
  }
}
