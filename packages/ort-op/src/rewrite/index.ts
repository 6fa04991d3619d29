export { fusedDomain, fusedOperator, precisionInput } from '../model/fused-operator.js';
export type { CacheLayer, CachelessModel } from './cache-joins.js';
export {
  type ConversionReport,
  type ConvertOptions,
  convertModel,
  type TargetName,
  type TokenCount,
} from './convert.js';
export { type FusedValues, fusedValues, withOutputs } from './fused-values.js';
export { cacheInput, withNativeCache } from './native-cache.js';
export {
  type PackedAttention,
  type PackedCacheModel,
  packedLayer,
  packedScale,
  withPackedCache,
} from './packed-cache.js';
export { operands, type Segment, segmentModel } from './segments.js';
export { storedSchedule, withPrecisions } from './stored-precision.js';
export { withoutPrecisionDefault } from './targets/fused.js';
