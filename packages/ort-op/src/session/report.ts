import type { AttentionSummary, LeftAttention } from '../find/index.js';
import type { KvCacheFormat } from './cache-format.js';

/** What a session did with its model. */
export interface SessionReport {
  /**
   * What runs: this package's CPU kernel, its WebGPU kernels inside ONNX Runtime's runs, its kernels between parts of the model,
   * ONNX Runtime's own fused attention, or an unchanged session.
   */
  readonly backend: 'native' | 'inplace' | 'split' | 'carrier' | 'stock';
  /** Why not this package's kernels, or not on the GPU, where they were asked for. */
  readonly reason?: string;
  /** Where attention is computed, with `native`: `cpu`, or the GPU's name with its architecture and driver. */
  readonly device?: string;
  /** Build of the CPU kernel, with `native`. */
  readonly isa?: string;
  /**
   * Where the key/value cache lives; undefined for models without one. `native`: out of the graph, in native memory,
   * appended in place. `native tensors`: in the graph, whose `present` outputs stay in native memory until they are fed as
   * `past`. `packed`: out of the graph, on the GPU of onnxruntime-web. `tensors`: with the caller, as data.
   */
  readonly kvCache?: 'native' | 'native tensors' | 'packed' | 'tensors';
  /** Why the cache stays tensors in onnxruntime-web. */
  readonly kvCacheReason?: string;
  /** The formats of a native or packed cache; several where layers differ. */
  readonly kvCacheFormats?: readonly KvCacheFormat[];
  /** Attentions that run on this package's kernel, in graph order. */
  readonly replaced: readonly AttentionSummary[];
  /** Attentions left as they were, each with the reason. */
  readonly left: readonly LeftAttention[];
}
