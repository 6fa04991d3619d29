// node embed.mjs NATIVE OUT.cc: the kernels as one text, their includes flattened, for the compiler that runs on the user's
// machine. node embed.mjs --list NATIVE: the files it is made of.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const list = process.argv[2] === '--list';
const [native, out] = process.argv.slice(list ? 3 : 2);
const included = new Set();

function flattened(file) {
  if (included.has(file)) return '';
  included.add(file);
  return readFileSync(join(native, file), 'utf8')
    .replace(/^#pragma once\n/m, '')
    .replace(/^#include "(.*)"\n/gm, (_, next) => flattened(next));
}

const text = flattened('hip/kernels/kernels.h');
if (list) {
  for (const file of included) console.log(`${native}/${file}`);
} else {
  // As numbers: compilers limit the length of string literals.
  const bytes = Buffer.from(`${text}\0`);
  const lines = [];
  for (let i = 0; i < bytes.length; i += 32) lines.push(`${[...bytes.subarray(i, i + 32)].join(',')},`);
  writeFileSync(
    out,
    `#include "hip/engine/kernel_source.h"\n\nnamespace mxattn::hip {\n\nconst char kKernelSource[] = {\n${lines.join('\n')}\n};\n\n}\n`,
  );
}
