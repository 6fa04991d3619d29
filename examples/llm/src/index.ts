export { generate, type Generated } from './generate.js';
export { heldOutTokens, type Perplexity, perplexity } from './perplexity.js';
export { type LlmVariant, llmVariants, withVariant } from './variants.js';
