export { type AttentionSpec, type AttentionSpecInit, attentionSpec, type Layout, type Window } from './attention/spec.js';
export { MxattnError } from './errors.js';
