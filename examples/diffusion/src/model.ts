import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { MxattnError } from '@mxattn/core';
import { createSession, type MxattnSession, type MxattnSessionOptions } from '@mxattn/ort-op';

/**
 * The diffusion transformer in a folder of models.
 *
 * @throws MxattnError when it is not there.
 */
export async function openModel(folder: string, options: MxattnSessionOptions): Promise<MxattnSession> {
  const file = join(folder, 'emoji-dit', 'onnx', 'model.onnx');
  if (!existsSync(file)) throw new MxattnError(`the diffusion model ${file} does not exist`);
  return createSession(file, options);
}
