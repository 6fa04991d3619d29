import type { InferenceSession } from 'onnxruntime-common';
import type { Feeds } from './feeds.js';
import type { SessionReport } from './report.js';
import type { Fetches, MxattnRunOptions } from './run-options.js';

/** An `InferenceSession` whose runs may carry a step, and that says what it replaced. */
export interface MxattnSession extends InferenceSession {
  readonly report: SessionReport;

  /**
   * Runs the model.
   *
   * @param feeds Tensors by input name, in CPU memory, not to be changed until the promise settles.
   * @param options Where this run stands in the schedule. Runs of one session may overlap and have different
   * precisions.
   * @throws MxattnError naming the input that is missing, unknown or of the wrong type or shape, or the step that
   * the schedule needs.
   */
  run(feeds: Feeds, options?: MxattnRunOptions): Promise<InferenceSession.ReturnType>;
  run(feeds: Feeds, fetches: Fetches, options?: MxattnRunOptions): Promise<InferenceSession.ReturnType>;
}
