export { fusedDomain, fusedOperator, precisionInput } from '../model/fused-operator.js';
export { type ConversionReport, type ConvertOptions, convertModel, type TargetName } from './convert.js';
export { type FusedValues, fusedValues, withOutputs } from './fused-values.js';
export { type CacheLayer, cacheInput, type NativeCacheModel, withNativeCache } from './native-cache.js';
export { operands, type Segment, segmentModel } from './segments.js';
export { storedSchedule, withPrecisions } from './stored-precision.js';
export { withoutPrecisionDefault } from './targets/fused.js';
