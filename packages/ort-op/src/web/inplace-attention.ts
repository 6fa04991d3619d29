/// <reference types="@webgpu/types" />
import { type PrecisionName, precision } from '@mxattn/core';
import { hasByteMatrices, isSoftware } from '../webgpu/features.js';
import {
  type Dispatch,
  type Interception,
  interceptDispatches,
  type Replacement,
} from '../webgpu/inplace/index.js';
import { type AttentionKernels, type AttentionPlan, compileAttention } from '../webgpu/plan.js';
import { type ShapeClass, shapeClass } from '../webgpu/shape-class.js';
import { encode } from '../webgpu/steps.js';
import { type CarriedAttention, carriedAttention, carrierLayouts, carrierProgram } from './carrier.js';

/** How often the attentions of a session ran where. */
export interface DispatchCounts {
  /** On this package's kernels, in the place of ONNX Runtime's. */
  readonly inPlace: number;
  /** On ONNX Runtime's own kernels, by the reason. */
  readonly left: Readonly<Record<string, number>>;
}

/** Plans whose scratch buffers are kept: lengths differ from run to run, but not within most models. */
const MOST_PLANS = 8;

/**
 * Computes the attentions of ONNX Runtime's runs on a device with this package's kernels: those that it dispatches between
 * {@link begin} and {@link end}. One session's run at a time.
 */
export class InplaceAttention {
  private readonly kernels = new Map<string, AttentionKernels>();
  /** Least recently used first. */
  private readonly plans = new Map<string, AttentionPlan>();
  private readonly interception: Interception;
  private precisions: readonly PrecisionName[] | undefined;
  private dispatched = 0;
  private inPlace = 0;
  private readonly left: Record<string, number> = {};

  constructor(private readonly device: GPUDevice) {
    this.interception = interceptDispatches(device, { [carrierProgram]: this.replace });
  }

  /** Compiles the kernels for a kind of attention; until that is done, ONNX Runtime's own run. */
  async prepare(shape: ShapeClass, name: PrecisionName): Promise<void> {
    const key = kernelKey(shape, name);
    if (this.kernels.has(key)) return;
    const options = { unroll: !isSoftware(this.device), matrix: hasByteMatrices(this.device) };
    this.kernels.set(key, await compileAttention(this.device, shape, precision(name), options));
  }

  /** A run begins whose attentions, in the order of their dispatch, have these precisions. */
  begin(precisions: readonly PrecisionName[]): void {
    this.precisions = precisions;
    this.dispatched = 0;
  }

  /** The run has ended: everything it recorded is submitted. */
  end(): void {
    this.precisions = undefined;
    for (const [key, plan] of this.plans) {
      if (this.plans.size <= MOST_PLANS) break;
      plan.destroy();
      this.plans.delete(key);
    }
  }

  get counts(): DispatchCounts {
    return { inPlace: this.inPlace, left: { ...this.left } };
  }

  release(): void {
    this.interception.release();
    for (const plan of this.plans.values()) plan.destroy();
    this.plans.clear();
  }

  private readonly replace: Replacement = (dispatch, record) => {
    if (!this.precisions) return false;
    const layer = this.dispatched++;
    const plan = this.planFor(dispatch, this.precisions[layer] ?? this.precisions.at(-1)!);
    if (typeof plan === 'string') {
      this.left[plan] = (this.left[plan] ?? 0) + 1;
      return false;
    }
    record((pass) => encode(this.device, pass, plan));
    this.inPlace++;
    return true;
  };

  private planFor(dispatch: Dispatch, name: PrecisionName) {
    const found = carriedAttention(dispatch);
    if (typeof found === 'string') return found;
    const { spec, extras, buffers } = found;
    const shape = shapeClass(spec, { bias: extras.biasStrides !== null, sinks: false });
    const kernels = this.kernels.get(kernelKey(shape, name));
    if (!kernels) return `no kernel is compiled for head size ${spec.headSize} at ${name}`;
    const key = JSON.stringify([spec, extras, name]);
    const plan = this.plans.get(key) ?? kernels.plan(spec, extras, carrierLayouts);
    // To the end: just used.
    this.plans.delete(key);
    this.plans.set(key, plan);
    return plan.steps(buffers);
  }
}

export type { CarriedAttention };

function kernelKey(
  { headSize, valueHeadSize, softcap, bias, sinks }: ShapeClass,
  name: PrecisionName,
): string {
  return [name, headSize, valueHeadSize, softcap, bias, sinks].join();
}
