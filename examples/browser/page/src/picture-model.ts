import { denoise, promptEncoder, type Vocabulary } from '@mxattn/example-diffusion/web';
import { createSession, type SessionReport } from '@mxattn/ort-op/web';
import type { InferenceSession } from 'onnxruntime-common';
import { address } from './address.js';
import { download } from './download.js';
import type { Environment } from './environment.js';
import { ort } from './runtime.js';
import { sessionOptions, type Variant } from './variants.js';

export interface PictureOptions {
  readonly device: Environment['device'];
  readonly vocabulary: Vocabulary;
  readonly prompt: string;
  readonly steps: number;
  readonly seed: number;
  readonly signal: AbortSignal;
  readonly onLoad: (part: number) => void;
  /** Called when the session is there. */
  readonly onStart: () => void;
  readonly onStep: (done: number) => void;
}

export interface PictureResult {
  /** [3, 64, 64] in -1..1, not clipped. */
  readonly picture: Float32Array;
  readonly times: readonly number[];
  readonly report: SessionReport;
}

/** Draws a picture from noise. */
export async function drawPicture(variant: Variant, options: PictureOptions): Promise<PictureResult> {
  const encodePrompt = promptEncoder(options.vocabulary);
  // A wrong word shows before the model is fetched.
  encodePrompt(options.prompt);
  const bytes = await download(address('models/emoji-dit/onnx/model.onnx'), options.onLoad);
  const { session, report } = await open(bytes, variant, options.device);
  const times: number[] = [];
  options.onStart();
  try {
    const picture = await denoise(session, options.prompt, {
      Tensor: ort.Tensor,
      encodePrompt,
      steps: options.steps,
      seed: options.seed,
      onStep: (step, ms) => {
        options.signal.throwIfAborted();
        times.push(ms);
        options.onStep(step + 1);
      },
    });
    return { picture, times, report };
  } finally {
    await session.release();
  }
}

async function open(
  bytes: Uint8Array,
  variant: Variant,
  device: Environment['device'],
): Promise<{ session: InferenceSession; report: SessionReport }> {
  const executionProvider = device;
  const session = await createSession(bytes, { ort, executionProvider, ...sessionOptions(variant, device) });
  return { session, report: session.report };
}
