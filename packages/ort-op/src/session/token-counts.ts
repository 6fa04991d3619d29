import { MxattnError } from '@mxattn/core';
import { type ModelProto, modelInputs } from '../model/index.js';
import type { TokenCount } from '../rewrite/index.js';

/** The elements of an int32 feed or output of a run. */
export type Elements = (name: string) => ArrayLike<number> | Promise<ArrayLike<number>>;

/**
 * The values that say how many tokens each entry of a batch has. A cache that a session keeps itself has as many of each, so
 * they are held against it at every run.
 */
export class TokenCounts {
  /** Outputs of the model that have to be fetched for it. */
  readonly outputs: readonly string[];

  constructor(
    private readonly counts: readonly TokenCount[],
    model: ModelProto,
  ) {
    const inputs = new Set(modelInputs(model).map(({ name }) => name));
    this.outputs = counts.map(({ lengths }) => lengths).filter((name) => !inputs.has(name));
  }

  /**
   * @param tokens In the cache after the run.
   * @param elements Of the run that has ended.
   * @throws MxattnError naming the node for which an entry has not as many.
   */
  async check(tokens: number, elements: Elements): Promise<void> {
    for (const { node, lengths } of this.counts) {
      const last = Array.from(await elements(lengths));
      const entry = last.findIndex((each) => each + 1 !== tokens);
      if (entry < 0) continue;
      throw new MxattnError(
        `${node} has ${last[entry]! + 1} tokens in entry ${entry} of the batch (seqlens_k, "${lengths}"), but its past and its ` +
          `new tokens are ${tokens}: a cache that the session keeps takes neither padding nor room behind the tokens; create ` +
          "the session with kvCache: 'tensors'",
      );
    }
  }
}
