import { MxattnError } from '@mxattn/core';
import type { InferenceSession } from 'onnxruntime-common';
import type { ValueSignature } from '../model/index.js';
import type { Feeds } from '../session/feeds.js';
import { valueMetadata } from '../session/metadata.js';
import type { SessionReport } from '../session/report.js';
import { type Fetches, type MxattnRunOptions, runArguments } from '../session/run-options.js';
import { type Inplace, InplaceSession } from './inplace-session.js';
import type { PackedCaches } from './packed-caches.js';

/** The inputs and outputs of a model that has its cache as tensors. */
export interface Signature {
  readonly inputs: readonly ValueSignature[];
  readonly outputs: readonly ValueSignature[];
}

/** A session in place whose key/value cache is packed on the device. */
export class PackedSession extends InplaceSession {
  constructor(
    session: InferenceSession,
    inplace: Inplace,
    private readonly caches: PackedCaches,
    private readonly signature: Signature,
    report: SessionReport,
  ) {
    super(session, inplace, report);
  }

  override get inputNames() {
    return this.signature.inputs.map(({ name }) => name);
  }

  override get outputNames() {
    return this.signature.outputs.map(({ name }) => name);
  }

  override get inputMetadata() {
    return this.signature.inputs.map(valueMetadata);
  }

  override get outputMetadata() {
    return this.signature.outputs.map(valueMetadata);
  }

  override async run(
    feeds: Feeds,
    fetchesOrOptions?: Fetches | MxattnRunOptions,
    maybeOptions?: MxattnRunOptions,
  ): Promise<InferenceSession.ReturnType> {
    const { names, targets, options } = runArguments(this.outputNames, fetchesOrOptions, maybeOptions);
    const { step, steps, phase, ...stock } = options;
    const precisions = this.precisions(feeds, options);
    const isCache = (name: string) => this.caches.has(name);
    const asked = names.filter((name) => !isCache(name));
    const given = Object.entries(feeds).filter(([name]) => !isCache(name));
    return this.inTurn(async () => {
      const cache = await this.caches.begin(feeds);
      const fetched = [...asked, ...cache.outputs];
      // Some output must be asked for.
      const computed = fetched.length > 0 ? fetched : this.session.outputNames;
      const fetches = Object.fromEntries(computed.map((name) => [name, targets.get(name) ?? null]));
      try {
        const all = { ...Object.fromEntries(given), ...cache.feeds };
        const outputs = await this.recorded({ precisions, packed: cache.layers }, () =>
          this.session.run(all, fetches, stock),
        );
        const counts = async (name: string) =>
          (await (outputs[name] ?? feeds[name]!).getData()) as Int32Array;
        await cache.check(counts);
        const present = cache.finish(names.filter(isCache));
        return Object.fromEntries(names.map((name) => [name, present.get(name) ?? outputs[name]!]));
      } catch (error) {
        cache.fail();
        throw explained(error);
      }
    });
  }
}

/** ONNX Runtime's GroupQueryAttention, which carries the tokens, takes a mask for one sequence or one token of each. */
function explained(error: unknown): unknown {
  if (!(error instanceof Error) || !error.message.includes('batch_size must be 1')) return error;
  return new MxattnError(
    'several tokens of each sequence of a batch, with a mask, cannot continue a packed cache; give them one by one, or ' +
      "create the session with kvCache: 'tensors'",
    { cause: error },
  );
}
