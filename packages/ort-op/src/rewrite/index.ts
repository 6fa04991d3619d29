export { type ConversionReport, type ConvertOptions, convertModel, type TargetName } from './convert.js';
export { convertedAttentions } from './converted.js';
export { fusedDomain, fusedOperator, precisionInput, withoutPrecisionDefault } from './targets/fused.js';
