// node embed.mjs NATIVE OUT.cc: the kernels as one text, their includes flattened, for the compiler that runs on the user's
// machine.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const [native, out] = process.argv.slice(2);
const included = new Set();

function flattened(file) {
  if (included.has(file)) return '';
  included.add(file);
  return readFileSync(join(native, file), 'utf8')
    .replace(/^#pragma once\n/m, '')
    .replace(/^#include "(.*)"\n/gm, (_, next) => flattened(next));
}

// As numbers: compilers limit the length of string literals.
const bytes = Buffer.from(`${flattened('hip/kernels/kernels.h')}\0`);
const lines = [];
for (let i = 0; i < bytes.length; i += 32) lines.push(`${[...bytes.subarray(i, i + 32)].join(',')},`);
writeFileSync(
  out,
  `#include "hip/engine/kernel_source.h"\n\nnamespace mxattn::hip {\n\nconst char kKernelSource[] = {\n${lines.join('\n')}\n};\n\n}\n`,
);
