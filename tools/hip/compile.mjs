// Compiles the GPU kernels for every architecture whose compiler is there, and writes what they need to docs/hip-kernels.md.
//   node tools/hip/compile.mjs          all, and the table
//   node tools/hip/compile.mjs --json [--head=4] [--recipe=1]   to standard output, only units with these defines
import { writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { architectures, assemble, compilerFor } from './compilers.mjs';
import { codeOf, kernelsOf, units } from './kernels.mjs';

const document = join(dirname(fileURLToPath(import.meta.url)), '..', '..', 'docs', 'hip-kernels.md');
const options = Object.fromEntries(process.argv.slice(2).map((each) => each.replace(/^--/, '').split('=')));

function wanted(defines) {
  const has = (name, value) => value === undefined || defines.includes(`${name}=${value}`);
  return has('MXATTN_HEAD_BLOCKS', options.head) && has('MXATTN_RECIPE', options.recipe);
}

/** Runs tasks two at a time: compilers need memory. */
async function twoAtATime(tasks) {
  const results = [];
  let next = 0;
  const worker = async () => {
    while (next < tasks.length) {
      const index = next++;
      results[index] = await tasks[index]();
    }
  };
  await Promise.all([worker(), worker()]);
  return results;
}

async function compile(architecture, defines) {
  const { assembly, said } = await assemble(architecture, defines);
  const kernels = kernelsOf(assembly).map((kernel) => {
    const code = codeOf(assembly, kernel.name);
    return {
      ...kernel,
      bytes: Number(
        /; codeLenInByte = (\d+)/.exec(assembly.slice(assembly.indexOf(`\n${kernel.name}:`)))?.[1] ?? 0,
      ),
      scaled: (code.match(/v_mfma_scale/g) ?? []).length,
      matrix: (code.match(/v_mfma_|v_wmma_/g) ?? []).length,
    };
  });
  return { architecture, version: compilerFor(architecture).version, defines, warnings: said, kernels };
}

/** One row a kernel; kernels that several units have in common come once. */
function table(results) {
  const rows = new Map();
  for (const { architecture, version, kernels } of results) {
    for (const k of kernels.filter(({ name }) => /^(attend|decode)/.test(name))) {
      const cells = [k.vgprs, k.sgprs, k.shared, k.spills, k.scratch, k.matrix, k.bytes];
      rows.set(
        `${architecture} ${k.name}`,
        `| ${architecture} | ${version} | \`${k.name}\` | ${k.threads} | ${cells.join(' | ')} |`,
      );
    }
  }
  return [
    '| GPU | clang | kernel | threads | vector registers | scalar registers | shared bytes | spills | scratch bytes | matrix instructions | code bytes |',
    '| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |',
    ...rows.values(),
  ].join('\n');
}

function page(results) {
  return `# The GPU kernels as compiled

What the kernels of \`packages/ort-op/native/hip/kernels\` need on each architecture, from the metadata of their machine code,
compiled without warnings by clang at -O3. Written by \`node tools/hip/compile.mjs\`. No GPU of AMD's was at hand: these are
facts about the code, not about its speed.

- Vector registers are those of a lane; CDNA has 512 for each lane of a SIMD, which its waves share, and counts accumulators
  among them; RDNA has 256 for a wave.
- \`attend_matrix_*\` use matrix instructions; a kernel \`..._4x4\` is for heads of up to 4 blocks of 32 elements, and as many of
  values. \`_adjusted\` has soft cap and bias besides. None spills.
- \`attend_lanes_*\` is the way of everything else, and \`decode_*\` that of few queries on a packed cache. No vector register of
  theirs is spilled in a loop: the 4 of \`attend_lanes_*\` on RDNA are written before it and read after it. Spills of
  \`decode_*\` on CDNA are scalars kept in vector registers.
- On gfx950 a workgroup has 256 queries and takes 64 keys at a time, not 128: a lane would have 32 more scores beside the 200
  to 240 of its 256 registers, of which no more are to be had with two waves on a SIMD. Shared memory would suffice: of 160 KiB,
  two buffers of 128 keys of 128 elements take 36 (MXFP4) to 68 KiB (MXFP8). The recipes take their reference from the first 64
  keys besides.
- The code objects were not run in tinygrad's emulation of AMD's GPUs: its package on PyPI comes without it (\`test/mockgpu\`).

${table(results)}
`;
}

const tasks = [];
for (const architecture of architectures) {
  if (!compilerFor(architecture)) {
    console.error(`skipped: ${architecture}: no clang here that knows it`);
    continue;
  }
  for (const defines of units(architecture).filter(wanted)) tasks.push(() => compile(architecture, defines));
}
const results = await twoAtATime(tasks);
if ('json' in options) {
  console.log(JSON.stringify(results));
} else {
  for (const { architecture, warnings } of results) {
    if (warnings) console.error(`${architecture}: ${warnings}`);
  }
  writeFileSync(document, page(results));
}
