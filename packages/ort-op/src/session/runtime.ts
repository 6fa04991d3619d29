import { readdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { MxattnError } from '@mxattn/core';
import type * as Ort from 'onnxruntime-common';

/** An installed onnxruntime-node. */
export interface Runtime {
  /** Its module: `InferenceSession`, `Tensor`, ... */
  readonly ort: typeof Ort;
  /** Path of the ONNX Runtime library inside it. */
  readonly libraryPath: string;
}

const LIBRARY_NAMES: Partial<Record<NodeJS.Platform, RegExp>> = {
  linux: /^libonnxruntime\.so(\.\d+)*$/,
  darwin: /^libonnxruntime(\.\d+)*\.dylib$/,
  win32: /^onnxruntime\.dll$/,
};

/**
 * The onnxruntime-node that a module would load.
 *
 * @param from File URL or path of that module; by default this package. transformers.js brings its own copy, so
 * sessions for it must come from there.
 * @throws MxattnError when onnxruntime-node or its library is missing.
 */
export function findRuntime(from: string | URL = import.meta.url): Runtime {
  const require = createRequire(from);
  let entry: string;
  try {
    entry = require.resolve('onnxruntime-node');
  } catch (error) {
    throw new MxattnError(
      `onnxruntime-node is not installed where ${from} could load it; add it as a dependency`,
      {
        cause: error,
      },
    );
  }
  return { ort: require(entry) as typeof Ort, libraryPath: findLibrary(join(dirname(entry), '..')) };
}

function findLibrary(packageFolder: string): string {
  const name = LIBRARY_NAMES[process.platform];
  const bin = join(packageFolder, 'bin');
  for (const version of list(bin)) {
    const folder = join(bin, version, process.platform, process.arch);
    const file = list(folder).find((entry) => name?.test(entry));
    if (file) return join(folder, file);
  }
  throw new MxattnError(
    `onnxruntime-node in ${packageFolder} has no ONNX Runtime library for ${process.platform}-${process.arch}`,
  );
}

function list(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}
