/// <reference types="@webgpu/types" />
import type { WebSessionOptions } from '@mxattn/ort-op/web';
import { encode, type Step } from '@mxattn/ort-op/webgpu';
import { openGpu, webRuntime } from '@mxattn/ort-op/webgpu-node';

/** What sessions in onnxruntime-web share. */
export type WebRuntime = Required<Pick<WebSessionOptions, 'ort' | 'device' | 'adapterInfo'>>;

/** onnxruntime-web on this process's GPU; {@link closeWeb} lets the process end. */
export async function openWeb(): Promise<WebRuntime> {
  const { adapter, device } = await openGpu();
  const ort = (await webRuntime()) as unknown as WebSessionOptions['ort'];
  return { ort, device, adapterInfo: adapter.info };
}

/** With `navigator` the process would not end. */
export function closeWeb(): void {
  Reflect.deleteProperty(globalThis, 'navigator');
}

/** Runs steps in a pass of their own. */
export function submit(device: GPUDevice, steps: readonly Step[]): void {
  const encoder = device.createCommandEncoder();
  const pass = encoder.beginComputePass();
  encode(device, pass, steps);
  pass.end();
  device.queue.submit([encoder.finish()]);
}

/** The bytes of a buffer. */
export async function readBuffer(device: GPUDevice, source: GPUBuffer): Promise<ArrayBuffer> {
  const readable = device.createBuffer({
    size: source.size,
    usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST,
  });
  const encoder = device.createCommandEncoder();
  encoder.copyBufferToBuffer(source, 0, readable, 0, source.size);
  device.queue.submit([encoder.finish()]);
  await readable.mapAsync(GPUMapMode.READ);
  const bytes = readable.getMappedRange().slice(0);
  readable.destroy();
  return bytes;
}
