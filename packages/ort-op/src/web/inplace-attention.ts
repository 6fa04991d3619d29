/// <reference types="@webgpu/types" />
import { type AttentionSpec, type PrecisionName, precision } from '@mxattn/core';
import { hasMatrices, isSoftware } from '../webgpu/features.js';
import { type Dispatch, interceptDispatches } from '../webgpu/inplace/index.js';
import { type AttentionKernels, type AttentionPlan, compileAttention } from '../webgpu/plan.js';
import { className, type ShapeClass, shapeClass } from '../webgpu/shape-class.js';
import { encode } from '../webgpu/steps.js';
import { carriedAttention, carriedOutput, carrierLayouts, carrierPrograms } from './carrier.js';

/** How often the attentions of a session ran where. */
export interface DispatchCounts {
  /** On this package's kernels, in the place of ONNX Runtime's. */
  readonly inPlace: number;
  /** On ONNX Runtime's own kernels, by the reason. */
  readonly left: Readonly<Record<string, number>>;
}

/** What the attentions of a run are computed with. */
export interface RunPlan {
  /** By layer, in the order of their dispatches. */
  readonly precisions: readonly PrecisionName[];
  /** Changes an attention before it is computed, for tests. */
  readonly change?: (spec: AttentionSpec) => AttentionSpec;
}

/** An attention whose first program was taken over, until the second one tells where its output goes. */
type Begun = (output: GPUBuffer) => ReturnType<AttentionPlan['steps']>;

/** Scratch buffers have room for lengths up to the next multiple of this, so that a growing cache seldom needs new ones. */
const LENGTH_STEP = 1024;
/** Sets of scratch buffers that are kept from run to run. */
const MOST_PLANS = 16;

/**
 * Computes the attentions of ONNX Runtime's runs on a device with this package's kernels: those that it dispatches between
 * {@link begin} and {@link end}. One session's run at a time.
 */
export class InplaceAttention {
  private readonly kernels = new Map<string, AttentionKernels>();
  private readonly compiling = new Map<string, Promise<void>>();
  /** Why kernels cannot be compiled. */
  private readonly failed = new Map<string, string>();
  /** Plans that serve the same sizes; a run takes as many as it has attentions that differ. Least recently used first. */
  private readonly pool = new Map<string, AttentionPlan[]>();
  private last: Promise<unknown> = Promise.resolve();
  private run: RunPlan | undefined;
  /** Of the run: its plans by all that an attention is, and how many of a pool's plans are taken. */
  private readonly inRun = new Map<string, AttentionPlan>();
  private readonly taken = new Map<string, number>();
  private dispatched = 0;
  private begun: Begun | undefined;
  private inPlace = 0;
  private readonly left: Record<string, number> = {};

  constructor(
    private readonly device: GPUDevice,
    private readonly adapterInfo: GPUAdapterInfo,
  ) {
    interceptDispatches(device, {
      [carrierPrograms.whole]: (dispatch, record) => {
        const output = carriedOutput(dispatch);
        const attention = this.attentionOf(dispatch);
        if (typeof attention === 'string' || typeof output === 'string') return false;
        record((pass) => encode(this.device, pass, attention(output)));
        return true;
      },
      [carrierPrograms.parts]: (dispatch) => {
        const attention = this.attentionOf(dispatch);
        this.begun = typeof attention === 'string' ? undefined : attention;
        return this.begun !== undefined;
      },
      [carrierPrograms.combination]: (dispatch, record) => {
        const { begun } = this;
        this.begun = undefined;
        const output = carriedOutput(dispatch);
        if (!begun || typeof output === 'string') return false;
        record((pass) => encode(this.device, pass, begun(output)));
        return true;
      },
    });
  }

  /**
   * Compiles the kernels for a kind of attention, once; until that is done, ONNX Runtime's own run.
   *
   * @throws MxattnError (as a rejection) if the device does not take them.
   */
  prepare(shape: ShapeClass, name: PrecisionName): Promise<void> {
    const key = kernelKey(shape, name);
    const started = this.compiling.get(key);
    if (started) return started;
    const { device, adapterInfo } = this;
    const options = { unroll: !isSoftware(adapterInfo), matrix: hasMatrices(device, adapterInfo) };
    const compiling = compileAttention(device, shape, precision(name), options).then(
      (kernels) => {
        this.kernels.set(key, kernels);
      },
      (error: Error) => {
        this.failed.set(key, error.message);
        throw error;
      },
    );
    this.compiling.set(key, compiling);
    return compiling;
  }

  /** Does something when all that was given to this earlier has ended, however it did: onnxruntime-web runs one at a time. */
  inTurn<T>(work: () => Promise<T>): Promise<T> {
    const running = this.last.then(work);
    this.last = running.catch(() => undefined);
    return running;
  }

  /** A run begins. */
  begin(run: RunPlan): void {
    this.run = run;
    this.dispatched = 0;
  }

  /** The run has ended: everything it recorded is submitted. */
  end(): void {
    this.run = undefined;
    this.inRun.clear();
    this.taken.clear();
    let count = [...this.pool.values()].reduce((sum, plans) => sum + plans.length, 0);
    for (const [key, plans] of this.pool) {
      if (count <= MOST_PLANS) break;
      for (const plan of plans) plan.destroy();
      count -= plans.length;
      this.pool.delete(key);
    }
  }

  get counts(): DispatchCounts {
    return { inPlace: this.inPlace, left: { ...this.left } };
  }

  private attentionOf(dispatch: Dispatch): Begun | string {
    if (!this.run) return 'no run of a session of mxattn';
    const attention = this.planned(dispatch, this.run);
    if (typeof attention === 'string') this.left[attention] = (this.left[attention] ?? 0) + 1;
    else this.inPlace++;
    return attention;
  }

  private planned(dispatch: Dispatch, { precisions, change = (spec) => spec }: RunPlan): Begun | string {
    const name = precisions[this.dispatched++] ?? precisions.at(-1)!;
    const found = carriedAttention(dispatch);
    if (typeof found === 'string') return found;
    const { extras, buffers } = found;
    const spec = change(found.spec);
    const shape = shapeClass(spec, { ...extras, bias: extras.biasStrides !== null });
    const kind = kernelKey(shape, name);
    const kernels = this.kernels.get(kind);
    if (!kernels) {
      // Its failure is told by the next dispatch.
      this.prepare(shape, name).catch(() => {});
      return (
        this.failed.get(kind) ?? `its kernel for head size ${spec.headSize} at ${name} is not compiled yet`
      );
    }
    const exact = JSON.stringify([spec, extras, name]);
    let plan = this.inRun.get(exact);
    if (!plan) {
      plan = this.fromPool(kernels, spec, extras, kind);
      this.inRun.set(exact, plan);
    }
    const used = plan;
    return (output) => used.steps({ ...buffers, output });
  }

  /** A plan with room for the attention that nothing else uses in this run. */
  private fromPool(
    kernels: AttentionKernels,
    spec: AttentionSpec,
    extras: Parameters<AttentionPlan['update']>[1],
    kind: string,
  ): AttentionPlan {
    const upTo = (length: number) => Math.ceil(length / LENGTH_STEP) * LENGTH_STEP;
    // A few queries stay a few.
    const queryLength = spec.queryLength <= 64 ? 64 : upTo(spec.queryLength);
    const capacity = { ...spec, queryLength, keyLength: upTo(spec.keyLength) };
    const key = [kind, spec.batch, spec.heads, spec.kvHeads, queryLength, capacity.keyLength].join();
    const plans = this.pool.get(key) ?? [];
    const number = this.taken.get(key) ?? 0;
    this.taken.set(key, number + 1);
    // To the end: just used.
    this.pool.delete(key);
    this.pool.set(key, plans);
    const known = plans[number];
    if (known) {
      known.update(spec, extras, carrierLayouts);
      return known;
    }
    const plan = kernels.plan(spec, extras, carrierLayouts, capacity);
    plans.push(plan);
    return plan;
  }
}

function kernelKey(shape: ShapeClass, name: PrecisionName): string {
  return `${name} ${className(shape)}`;
}
