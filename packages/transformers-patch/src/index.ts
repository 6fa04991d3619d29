export { type ModelReport, type PatchOptions, patch, patchReport, unpatch } from './patch/patch.js';
