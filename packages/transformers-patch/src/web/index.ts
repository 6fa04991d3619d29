export type { ModelReport } from '../patch/report.js';
export { patch, patchReport, unpatch, type WebPatchOptions } from './patch.js';
