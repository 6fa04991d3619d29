/// <reference types="@webgpu/types" />
import type { AttentionSpec, Recipe } from '@mxattn/core';
import type { AttentionPlan, PlanOptions } from './plan.js';
import { channelsOf, type ShapeClass } from './shape-class.js';

/** Query rows of a workgroup: ROWS of the attend kernels. */
const ROWS = 64;

/** What kernels are compiled for. */
export interface KernelContext {
  readonly device: GPUDevice;
  readonly shape: ShapeClass;
  readonly recipe: Recipe;
  readonly options: PlanOptions;
}

export interface Context extends KernelContext {
  /** What scratch buffers have room for. */
  readonly capacity: AttentionSpec;
  /** The attention to record; changes with an update. */
  spec: AttentionSpec;
  readonly problem: GPUBuffer;
}

export type Planner = (context: Context) => Omit<AttentionPlan, 'update'>;

/** Workgroups along [rows of a key/value head, key/value heads, chunks of output channels]. */
export function attendGroups({ spec, shape }: Context): [number, number, number] {
  const { batch, heads, kvHeads, queryLength } = spec;
  const rows = (heads / kvHeads) * queryLength;
  return [Math.ceil(rows / ROWS), batch * kvHeads, channelsOf(shape).valueChunks];
}

/** Two arrays in one buffer, the second from a multiple of 256 bytes on. */
export function halves(buffer: GPUBuffer, boundary: number): [GPUBufferBinding, GPUBufferBinding] {
  return [
    { buffer, size: Math.max(boundary, 256) },
    { buffer, offset: boundary },
  ];
}
