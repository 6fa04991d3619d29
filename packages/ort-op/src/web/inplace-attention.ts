/// <reference types="@webgpu/types" />
import { type AttentionSpec, attentionSpec, type PrecisionName, precision } from '@mxattn/core';
import type { PackedAttention } from '../rewrite/index.js';
import { hasMatrices, isSoftware } from '../webgpu/features.js';
import { type Dispatch, interceptDispatches } from '../webgpu/inplace/index.js';
import { type KvCache, unpackedTokens } from '../webgpu/kv-cache.js';
import { type AttentionKernels, type AttentionPlan, compileAttention, type Extras } from '../webgpu/plan.js';
import type { OperandLayouts } from '../webgpu/problem.js';
import { className, type ShapeClass, shapeClass } from '../webgpu/shape-class.js';
import { encode, type Step } from '../webgpu/steps.js';
import {
  type CarriedEnd,
  carriedAdditions,
  carriedAttention,
  carriedEnd,
  carriedLayer,
  carriedTokens,
  carrierLayouts,
  carrierPrograms,
  copyProgram,
} from './carrier.js';
import type { NodeFeatures } from './carrier-nodes.js';
import { planRoom, roomFor } from './room.js';

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
  /** What the attentions are beyond what their programs show, likewise. */
  readonly nodes?: readonly NodeFeatures[];
  /** Where the past tokens of a model's attentions are, by layer, if they are not in its tensors. */
  readonly packed?: readonly PackedLayer[];
  /** Changes an attention before it is computed, for tests. */
  readonly change?: (spec: AttentionSpec) => AttentionSpec;
}

/** An attention and the cache that it continues. */
export interface PackedLayer {
  readonly attention: Pick<PackedAttention, 'causal' | 'windowLeft'>;
  readonly cache: KvCache;
}

/** An attention whose first program was taken over, until the second one tells where it ends. */
type Begun = (end: CarriedEnd) => readonly Step[];

/** Sets of scratch buffers that are kept from run to run. */
const MOST_PLANS = 16;
/** How a packed cache holds keys and values, and the precision that reads it as it is. */
export const CACHE_FORMAT = 'mxfp4';
const NO_FEATURES: NodeFeatures = { softcap: 0, sinks: false, equalLengths: false };
const NO_ADDITIONS = 'its new keys and values are not known';

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
  /** New keys and values of the attention that comes next. */
  private additions: ReturnType<typeof carriedAdditions> = NO_ADDITIONS;
  private readonly unpacked: Unpacked;
  private begun: Begun | undefined;
  private inPlace = 0;
  private readonly left: Record<string, number> = {};

  constructor(
    private readonly device: GPUDevice,
    private readonly adapterInfo: GPUAdapterInfo,
  ) {
    this.unpacked = new Unpacked(device);
    interceptDispatches(device, {
      [copyProgram]: (dispatch) => {
        if (!this.run?.packed) return false;
        this.additions = carriedAdditions(dispatch);
        return typeof this.additions !== 'string';
      },
      [carrierPrograms.whole]: (dispatch, record) => {
        const end = carriedEnd(dispatch);
        const attention = this.attentionOf(dispatch);
        if (typeof attention === 'string' || typeof end === 'string') return false;
        record((pass) => encode(this.device, pass, attention(end)));
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
        const end = carriedEnd(dispatch);
        if (!begun || typeof end === 'string') return false;
        record((pass) => encode(this.device, pass, begun(end)));
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
    this.additions = NO_ADDITIONS;
    this.unpacked.retire();
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

  private planned(dispatch: Dispatch, run: RunPlan): Begun | string {
    const { precisions, nodes = [], change = (spec) => spec } = run;
    const layer = carriedLayer(dispatch);
    if (layer !== undefined) return this.continued(dispatch, layer, run);
    const number = this.dispatched++;
    const name = precisions[number] ?? precisions.at(-1)!;
    const found = carriedAttention(dispatch, nodes[number] ?? nodes.at(-1) ?? NO_FEATURES);
    if (typeof found === 'string') return found;
    const { extras, buffers } = found;
    const plan = this.planFor(change(found.spec), extras, name, carrierLayouts);
    if (typeof plan === 'string') return plan;
    return (end) => plan.steps({ ...buffers, ...end });
  }

  /** An attention to a packed cache. */
  private continued(dispatch: Dispatch, layer: number, { precisions, packed }: RunPlan): Begun | string {
    const { additions } = this;
    this.additions = NO_ADDITIONS;
    const found = carriedTokens(dispatch, layer);
    const place = packed?.[layer];
    if (typeof found === 'string') return found;
    if (typeof additions === 'string') return additions;
    if (!place) return `there is no cache of layer ${layer}`;
    const { attention, cache } = place;
    const { count, query, bias } = found;
    const { key, value } = additions;
    const name = precisions[layer]!;
    if (count === 1 && name === CACHE_FORMAT) {
      const [batch, head, , step] = bias?.strides ?? [0, 0, 0, 0];
      const buffers = { query, key, value, ...(bias ? { bias: bias.buffer } : {}) };
      return (end) => cache.step({ ...buffers, ...end }, [batch, head, step]);
    }
    const past = cache.length;
    const { causal, windowLeft } = attention;
    const spec = attentionSpec({
      ...cache.shape,
      queryLength: count,
      keyLength: past + count,
      // Of a panel that is not full there is room for the rest.
      ...(past > 0 ? { keyCapacity: unpackedTokens(past + count) } : {}),
      causal,
      window: windowLeft < 0 ? null : { left: windowLeft, right: 0 },
    });
    const { elementType } = cache.shape;
    const extras = { elementType, biasStrides: bias?.strides ?? null, sinks: false };
    const layouts = past > 0 ? carrierLayouts : ({ ...carrierLayouts, key: 'BSHD', value: 'BSHD' } as const);
    const plan = this.planFor(spec, extras, name, layouts);
    if (typeof plan === 'string') return plan;
    const append = cache.append(key, value, count, 'BSHD');
    const buffers = { query, ...(bias ? { bias: bias.buffer } : {}) };
    // What is new is there as it was.
    if (past === 0) return (end) => [...append, ...plan.steps({ ...buffers, key, value, ...end })];
    const all = this.unpacked.of(cache);
    return (end) => [
      ...append,
      cache.unpack(all.key, all.value),
      ...plan.steps({ ...buffers, ...all, ...end }),
    ];
  }

  private planFor(
    spec: AttentionSpec,
    extras: Extras,
    name: PrecisionName,
    layouts: OperandLayouts,
  ): AttentionPlan | string {
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
    const exact = JSON.stringify([spec, extras, name, layouts]);
    let plan = this.inRun.get(exact);
    if (!plan) {
      plan = this.fromPool(kernels, spec, extras, kind, layouts);
      this.inRun.set(exact, plan);
    }
    return plan;
  }

  /** A plan with room for the attention that nothing else uses in this run. */
  private fromPool(
    kernels: AttentionKernels,
    spec: AttentionSpec,
    extras: Extras,
    kind: string,
    layouts: OperandLayouts,
  ): AttentionPlan {
    const { capacity, key: sizes } = planRoom(spec);
    const key = `${kind},${sizes}`;
    const plans = this.pool.get(key) ?? [];
    const number = this.taken.get(key) ?? 0;
    this.taken.set(key, number + 1);
    // To the end: just used.
    this.pool.delete(key);
    this.pool.set(key, plans);
    const known = plans[number];
    if (known) {
      known.update(spec, extras, layouts);
      return known;
    }
    const plan = kernels.plan(spec, extras, layouts, capacity);
    plans.push(plan);
    return plan;
  }
}

/** The keys and values of a cache as numbers, of one layer after the other. */
class Unpacked {
  private buffers: { key: GPUBuffer; value: GPUBuffer } | undefined;
  /** Too small ones, which a run still reads. */
  private readonly retired: GPUBuffer[] = [];

  constructor(private readonly device: GPUDevice) {}

  /** Buffers with room for those of a cache. */
  of(cache: KvCache): { readonly key: GPUBuffer; readonly value: GPUBuffer } {
    const { batch, kvHeads, headSize, elementType } = cache.shape;
    const room = roomFor(cache.unpackedTokens);
    const size = (elementType === 'float16' ? 2 : 4) * batch * kvHeads * room * headSize;
    if (this.buffers && this.buffers.key.size >= size) return this.buffers;
    if (this.buffers) this.retired.push(this.buffers.key, this.buffers.value);
    const allocate = (label: string) =>
      this.device.createBuffer({ label: `mxattn ${label}`, size, usage: GPUBufferUsage.STORAGE });
    this.buffers = { key: allocate('unpacked keys'), value: allocate('unpacked values') };
    return this.buffers;
  }

  /** The run has been submitted. */
  retire(): void {
    for (const buffer of this.retired.splice(0)) buffer.destroy();
  }
}

function kernelKey(shape: ShapeClass, name: PrecisionName): string {
  return `${name} ${className(shape)}`;
}
