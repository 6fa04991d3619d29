export { fusedDomain, fusedOperator, precisionInput } from '../model/fused-operator.js';
export { type ConversionReport, type ConvertOptions, convertModel, type TargetName } from './convert.js';
