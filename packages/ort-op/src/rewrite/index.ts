export { type ConversionReport, type ConvertOptions, convertModel, type TargetName } from './convert.js';
export { fusedDomain, fusedOperator, precisionInput } from './targets/fused.js';
