/// <reference types="@webgpu/types" />
import type { Step } from '@mxattn/ort-op/webgpu';
import type { GpuTimer } from './gpu-timer.js';

/** Measured arithmetic of a GPU from WGSL, in Top/s, two for a multiply-add; what it does not have is left out. */
export interface GpuPeaks {
  readonly dot4?: number;
  readonly i8Matrix?: number;
  readonly f16Matrix?: number;
}

const WORKGROUPS = 4096;
const REPEATS = 2000;

function dot4(): string {
  const lanes = Array.from({ length: 8 }, (_, i) => i);
  return `requires packed_4x8_integer_dot_product;
@group(0) @binding(0) var<storage, read_write> sink: array<i32>;
@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  ${lanes.map((i) => `var s${i} = i32(id.x) + ${i};`).join(' ')}
  for (var i = 0u; i < ${REPEATS}u; i++) { ${lanes.map((i) => `s${i} += dot4I8Packed(id.x + ${i}u, u32(s${i}));`).join(' ')} }
  let s = ${lanes.map((i) => `s${i}`).join(' + ')};
  if (s == 12345) { sink[0] = s; }
}`;
}

function matrix(type: 'i8' | 'f16', result: 'i32' | 'f32', depth: number): string {
  const lanes = Array.from({ length: 4 }, (_, i) => i);
  const [left, right, sum] = [`<${type}, ${depth}, 16>`, `<${type}, 16, ${depth}>`, `<${result}, 16, 16>`];
  return `enable chromium_experimental_subgroup_matrix;
enable subgroups;
${type === 'f16' ? 'enable f16;' : ''}
diagnostic(off, chromium.subgroup_matrix_uniformity);
@group(0) @binding(0) var<storage, read_write> sink: array<vec4<u32>>;
@compute @workgroup_size(32, 8)
fn main() {
  let a = subgroupMatrixLoad<subgroup_matrix_left${left}, row_major>(&sink, 0u, 8u);
  let b = subgroupMatrixLoad<subgroup_matrix_right${right}, col_major>(&sink, 0u, 8u);
  ${lanes.map((i) => `var s${i} = subgroup_matrix_result${sum}(${i});`).join(' ')}
  for (var i = 0u; i < ${REPEATS}u; i++) { ${lanes.map((i) => `s${i} = subgroupMatrixMultiplyAccumulate(a, b, s${i});`).join(' ')} }
  ${lanes.map((i) => `subgroupMatrixStore<row_major>(&sink, ${64 * i}u, s${i}, 4u);`).join(' ')}
}`;
}

/** Measures what the kernels' instructions can do at best. */
export async function measureGpuPeaks(
  device: GPUDevice,
  timer: GpuTimer,
  hasMatrices: boolean,
): Promise<GpuPeaks> {
  const sink = device.createBuffer({ size: 4096, usage: GPUBufferUsage.STORAGE });
  const rate = async (code: string, operations: number) => {
    const module = device.createShaderModule({ code });
    const step: Step = {
      name: 'peak',
      pipeline: await device.createComputePipelineAsync({
        layout: 'auto',
        compute: { module, entryPoint: 'main' },
      }),
      bindings: [{ binding: 0, resource: { buffer: sink } }],
      workgroups: [WORKGROUPS, 1, 1],
    };
    await timer.time([step]);
    return (operations * WORKGROUPS * REPEATS) / (await timer.time([step])) / 1e9;
  };
  // By workgroup and repeat: 256 invocations x 8 sums x 4 products; 8 subgroups x 4 products of 16 x 16 x depth.
  const peaks: GpuPeaks = { dot4: await rate(dot4(), 256 * 8 * 4 * 2) };
  if (!hasMatrices) return peaks;
  const products = (depth: number) => 8 * 4 * 16 * 16 * depth * 2;
  return {
    ...peaks,
    i8Matrix: await rate(matrix('i8', 'i32', 32), products(32)),
    f16Matrix: await rate(matrix('f16', 'f32', 16), products(16)),
  };
}
