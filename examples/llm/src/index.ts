export { type Generated, generate } from './generate.js';
export { openModels } from './models.js';
export { heldOutTokens, negativeLogLikelihood, type Perplexity, perplexity } from './perplexity.js';
