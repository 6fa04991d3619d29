export { type PatchOptions, patch, patchReport, unpatch } from './patch/patch.js';
export type { ModelReport } from './patch/report.js';
