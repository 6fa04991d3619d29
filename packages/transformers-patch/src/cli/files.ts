import { existsSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { MxattnError } from '@mxattn/core';
import { externalFiles, type ModelProto } from '@mxattn/ort-op';

/** @throws MxattnError naming the file where it cannot be written. */
export function writeFile(path: string, content: string | Uint8Array): void {
  try {
    writeFileSync(path, content);
  } catch (error) {
    throw new MxattnError(`cannot write ${path}: ${(error as Error).message}`);
  }
}

/**
 * Weights in files of their own are not copied, they may be large: whoever converts into another folder has to have
 * them there.
 *
 * @throws MxattnError naming the files that would be missing beside the converted model.
 */
export function checkExternalFiles(model: ModelProto, source: string, out: string): void {
  const [from, to] = [dirname(source), dirname(out)];
  if (relative(from, to) === '') return;
  const missing = externalFiles(model).filter((file) => !existsSync(join(to, file)));
  if (missing.length === 0) return;
  throw new MxattnError(
    `the weights of ${source} lie beside it in ${missing.join(', ')}: write the converted model into ${from}, ` +
      `or copy ${missing.length === 1 ? 'that file' : 'those files'} to ${to} first`,
  );
}
