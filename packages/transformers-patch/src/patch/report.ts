import type { SessionReport } from '@mxattn/ort-op';

/** What became of one model that transformers.js loaded. */
export interface ModelReport extends SessionReport {
  /** Path of the ONNX file, or its size where transformers.js passed bytes. */
  readonly model: string;
}
