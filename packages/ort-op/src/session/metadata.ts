import type { InferenceSession } from 'onnxruntime-common';
import type { ValueSignature } from '../model/index.js';

/** What a session says of an input or output. */
export function valueMetadata({ name, type, dims }: ValueSignature): InferenceSession.ValueMetadata {
  return type === undefined ? { name, isTensor: false } : { name, isTensor: true, type, shape: dims };
}
