export type { SessionReport } from '../session/report.js';
export type { Fetches, MxattnRunOptions } from '../session/run-options.js';
export type { MxattnSession } from '../session/types.js';
export { createSession } from './create.js';
export { type AdapterDevice, requestDevice } from './device.js';
export type { DispatchCounts } from './inplace-attention.js';
export { InplaceSession } from './inplace-session.js';
export type { WebBackend, WebSessionOptions } from './options.js';
