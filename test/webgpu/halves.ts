/// <reference types="@webgpu/types" />
import {
  type AttentionSpec,
  type AttentionTensors,
  additiveBias,
  broadcastStrides,
  emulateAttention,
  fromF16,
  precision,
  type Recipe,
  referenceAttention,
  toF16,
} from '@mxattn/core';
import { type PlanOptions, planAttention } from '@mxattn/ort-op/webgpu';
import { expect } from 'vitest';
import { EMULATION_ERROR, FLOAT_ERROR } from '../conformance/bounds.js';
import { relativeError } from '../conformance/random.js';
import { type Row, table } from '../conformance/table.js';
import { readBuffer, submit } from './device.js';

/** Of the output: half a unit in the last place of float16. */
export const OUTPUT_ERROR = 2 ** -11;

/** The conformance table, but for a bias that leaves float32 scores 2^-7; the backend takes it out before a plan has it. */
export const floatRows = table.filter(({ name }) => name !== 'the same bias for every key');

/** Rows of one pipeline: in software each takes seconds to compile. */
export const plainRows = floatRows.filter(({ name }) =>
  [
    '127 queries and keys',
    'two sequences',
    'layout BSHD',
    'grouped query heads',
    'causal, bottom-right',
    'window of 17 keys',
    'one value token 1000 times the others',
  ].includes(name),
);

/** Holds float16 tensors of a row against the reference on the same rounded operands. */
export async function expectHalves(
  device: GPUDevice,
  { spec, tensors, largeScores }: Row,
  name: 'f32' | 'mxfp6',
  options: PlanOptions,
): Promise<void> {
  const operands = roundedTensors(tensors, spec);
  const output = await attendHalves(device, operands, spec, precision(name), options);
  const expected =
    name === 'f32'
      ? referenceAttention(operands, spec)
      : emulateAttention(operands, spec, precision(name), { arithmetic: 'f32' });
  const kernel = name === 'f32' ? FLOAT_ERROR[largeScores ? 'largeScores' : 'usual'] : EMULATION_ERROR;
  expect(output.every(Number.isFinite)).toBe(true);
  expect(relativeError(output, expected)).toBeLessThan(kernel + OUTPUT_ERROR);
}

/** Numbers as float16 and back. */
export function rounded(data: Float32Array): Float32Array {
  return data.map((x) => fromF16(toF16(x)));
}

/** The operands as float16 has them, with mask and bias as one bias. */
export function roundedTensors(tensors: AttentionTensors, spec: AttentionSpec): AttentionTensors {
  const { query, key, value, sinks } = tensors;
  const bias = additiveBias(tensors, spec);
  return {
    query: rounded(query),
    key: rounded(key),
    value: rounded(value),
    ...(bias ? { bias: { ...bias, data: rounded(bias.data) } } : {}),
    ...(sinks ? { sinks: rounded(sinks) } : {}),
  };
}

/** A buffer of float16 in whole words. */
export function halfBuffer(device: GPUDevice, data: ArrayLike<number>): GPUBuffer {
  const halves = new Uint16Array(Math.max(8, data.length + (data.length % 2)));
  for (let i = 0; i < data.length; i++) halves[i] = toF16(data[i]!);
  const { STORAGE, COPY_DST, COPY_SRC } = GPUBufferUsage;
  const buffer = device.createBuffer({ size: halves.byteLength, usage: STORAGE | COPY_DST | COPY_SRC });
  device.queue.writeBuffer(buffer, 0, halves);
  return buffer;
}

/** The first `length` halves of a buffer. */
export async function readHalves(
  device: GPUDevice,
  source: GPUBuffer,
  length: number,
): Promise<Float32Array> {
  const halves = new Uint16Array(await readBuffer(device, source), 0, length);
  return Float32Array.from(halves, fromF16);
}

/** Attention on float16 buffers. The operands are halves already; see {@link roundedTensors}. */
export async function attendHalves(
  device: GPUDevice,
  { query, key, value, bias, sinks }: AttentionTensors,
  spec: AttentionSpec,
  recipe: Recipe,
  options: PlanOptions,
): Promise<Float32Array> {
  const extras = {
    elementType: 'float16',
    biasStrides: bias ? broadcastStrides(bias.dims) : null,
    sinks: sinks !== undefined,
  } as const;
  const plan = await planAttention(device, spec, recipe, extras, options);
  const length = spec.batch * spec.heads * spec.queryLength * spec.valueHeadSize;
  const buffers = {
    query: halfBuffer(device, query),
    key: halfBuffer(device, key),
    value: halfBuffer(device, value),
    // Whatever was there before must not show.
    output: halfBuffer(device, new Float32Array(length).fill(-1234)),
    ...(bias ? { bias: halfBuffer(device, bias.data) } : {}),
    ...(sinks ? { sinks: halfBuffer(device, sinks) } : {}),
  };
  submit(device, plan.steps(buffers));
  const output = await readHalves(device, buffers.output, length);
  for (const buffer of Object.values(buffers)) buffer.destroy();
  plan.destroy();
  return output;
}
