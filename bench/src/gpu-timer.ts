/// <reference types="@webgpu/types" />
import { encode, type Step } from '@mxattn/ort-op/webgpu';

/** Timestamps of a pass: its begin and end. */
const STAMPS = 2;

/** Arithmetic that keeps a GPU at its clock: idle ones need a while to get there. */
const BURN = `
@group(0) @binding(0) var<storage, read_write> sink: array<f32>;
@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  var a = f32(id.x);
  var b = a;
  for (var i = 0u; i < 20000u; i++) {
    a = fma(a, 0.999f, 1f);
    b = fma(b, 0.999f, 1f);
  }
  if (a + b == 1.5f) { sink[0] = a; }
}`;

/** Measures passes by the GPU's own clock. The device must have `timestamp-query`. */
export class GpuTimer {
  private readonly queries: GPUQuerySet;
  private readonly resolved: GPUBuffer;
  private readonly readable: GPUBuffer;
  private readonly burn: Step;

  /** @param software whether the device computes in software, where nothing needs warming up. */
  constructor(
    private readonly device: GPUDevice,
    software = false,
  ) {
    this.queries = device.createQuerySet({ type: 'timestamp', count: STAMPS });
    this.resolved = device.createBuffer({
      size: STAMPS * 8,
      usage: GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC,
    });
    this.readable = device.createBuffer({
      size: STAMPS * 8,
      usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST,
    });
    const module = device.createShaderModule({ code: BURN });
    const sink = device.createBuffer({ size: 16, usage: GPUBufferUsage.STORAGE });
    this.burn = {
      name: 'burn',
      pipeline: device.createComputePipeline({ layout: 'auto', compute: { module, entryPoint: 'main' } }),
      bindings: [{ binding: 0, resource: { buffer: sink } }],
      workgroups: [software ? 0 : 2048, 1, 1],
    };
  }

  /** Keeps the GPU busy for some milliseconds. */
  async warmUp(milliseconds: number): Promise<void> {
    const start = performance.now();
    while (performance.now() - start < milliseconds) {
      const encoder = this.device.createCommandEncoder();
      const pass = encoder.beginComputePass();
      encode(this.device, pass, [this.burn]);
      pass.end();
      this.device.queue.submit([encoder.finish()]);
      await this.device.queue.onSubmittedWorkDone();
    }
  }

  /** Milliseconds of these steps, one after another, right after other work. */
  async time(steps: readonly Step[]): Promise<number> {
    const { device, queries, resolved, readable } = this;
    const encoder = device.createCommandEncoder();
    const before = encoder.beginComputePass();
    encode(device, before, [this.burn]);
    before.end();
    const pass = encoder.beginComputePass({
      timestampWrites: { querySet: queries, beginningOfPassWriteIndex: 0, endOfPassWriteIndex: 1 },
    });
    encode(device, pass, steps);
    pass.end();
    encoder.resolveQuerySet(queries, 0, STAMPS, resolved, 0);
    encoder.copyBufferToBuffer(resolved, 0, readable, 0, STAMPS * 8);
    device.queue.submit([encoder.finish()]);
    await readable.mapAsync(GPUMapMode.READ);
    const [begin, end] = new BigUint64Array(readable.getMappedRange().slice(0));
    readable.unmap();
    return Number(end! - begin!) / 1e6;
  }
}
