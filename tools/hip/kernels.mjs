// What compiled kernels need: registers, shared memory, spills, from the metadata of their assembly.

/** The sets of kernels that plans compile together, by defines. */
export function units(architecture) {
  const recipes = architecture === 'gfx950' ? [1, 2, 3, 10] : [1, 2];
  const matrix = recipes.flatMap((recipe) =>
    ['2', '4'].map((blocks) => [
      `MXATTN_RECIPE=${recipe}`,
      `MXATTN_HEAD_BLOCKS=${blocks}`,
      `MXATTN_VALUE_BLOCKS=${blocks}`,
    ]),
  );
  // The way of other sizes, and a packed cache.
  return [['MXATTN_RECIPE=2', 'MXATTN_CACHE_RECIPE=2', 'MXATTN_NO_MATRIX'], ...matrix];
}

/** Kernels of an assembly, in its order. */
export function kernelsOf(assembly) {
  const start = assembly.indexOf('amdhsa.kernels:');
  const end = assembly.indexOf('\namdhsa.target:', start);
  const blocks = assembly.slice(start, end).split('\n  - ').slice(1);
  return blocks.map((block) => {
    const number = (key) => Number(new RegExp(`\\.${key}:\\s+(\\d+)`).exec(block)?.[1] ?? 0);
    return {
      name: /\n {4}\.name:\s+(\S+)/.exec(block)[1],
      threads: number('max_flat_workgroup_size'),
      vgprs: number('vgpr_count'),
      sgprs: number('sgpr_count'),
      shared: number('group_segment_fixed_size'),
      spills: number('vgpr_spill_count') + number('sgpr_spill_count'),
      scratch: number('private_segment_fixed_size'),
    };
  });
}

/** The instructions of one kernel. */
export function codeOf(assembly, name) {
  const start = assembly.indexOf(`\n${name}:`);
  return assembly.slice(start, assembly.indexOf('\n.Lfunc_end', start));
}
