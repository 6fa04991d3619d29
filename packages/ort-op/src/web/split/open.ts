import type { Schedule } from '@mxattn/core';
import type * as Ort from 'onnxruntime-common';
import type { ModelProto } from '../../model/index.js';
import { convertModel } from '../../rewrite/index.js';
import type { SplitAttention } from './attention.js';
import { type SplitParts, SplitSession } from './session.js';

/**
 * Opens a model that is cut at its attentions.
 *
 * @param reason Why not in another way, for the report.
 * @returns undefined where there is no attention to replace.
 * @throws MxattnError if it cannot be cut.
 */
export async function openSplit(
  original: ModelProto,
  crossAttention: boolean,
  parts: SplitParts,
  reason?: string,
): Promise<SplitSession | undefined> {
  const { model, report } = convertModel(original, { crossAttention });
  if (report.replaced.length === 0) return undefined;
  return SplitSession.open(model, parts, { backend: 'split', ...(reason ? { reason } : {}), ...report });
}

/** What a split session is made of, with the caller's own options. */
export function splitParts(
  create: SplitParts['create'],
  attention: SplitAttention,
  plan: Schedule,
  { preferredOutputLocation }: Ort.InferenceSession.SessionOptions,
): SplitParts {
  return { create, attention, plan, ...(preferredOutputLocation ? { preferredOutputLocation } : {}) };
}
