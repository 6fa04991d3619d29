import { findAttention, nameOf } from '../find/find.js';
import type { FoundAttention } from '../find/index.js';
import { summaryOf } from '../find/summary.js';
import { fusedDomain } from '../model/fused-operator.js';
import { intAttribute, type ModelProto } from '../model/index.js';
import type { ConversionReport } from './convert.js';

/** Whether a model has FusedAttention in it already. */
export function isConverted(model: ModelProto): boolean {
  return model.opsetImport.some(({ domain }) => domain === fusedDomain);
}

/** What an earlier conversion replaced. */
export function reportConverted(model: ModelProto): ConversionReport {
  const { found, left } = findAttention(model);
  const isFused = ({ anchor }: FoundAttention) => anchor.domain === fusedDomain;
  const reason = 'the model is converted already; convert the original instead';
  return {
    replaced: found
      .filter(isFused)
      .map((each) => summaryOf(each, intAttribute(each.anchor, 'layer', each.layer)))
      .sort((a, b) => a.layer - b.layer),
    left: [
      ...left,
      ...found.filter((each) => !isFused(each)).map(({ anchor }) => ({ node: nameOf(anchor), reason })),
    ],
  };
}
