import { MxattnError } from '@mxattn/core';
import type * as Ort from 'onnxruntime-common';
import type { Tensor } from 'onnxruntime-common';
import type { PassedValue, ValueSignature } from '../model/index.js';
import type { NativeTensor } from '../native/addon.js';
import type { Feeds } from './feeds.js';
import { type ElementType, elementTypeNumber, typedData } from './tensors.js';

/** Types that an opaque tensor can have: those that onnxruntime-common allows a GPU buffer. */
const OPAQUE_TYPES: readonly (string | undefined)[] = [
  'float32',
  'float16',
  'int32',
  'int64',
  'uint32',
  'uint8',
  'bool',
];

/**
 * The outputs that the next run takes as inputs, by the names transformers.js pairs: `present.0.key` and
 * `past_key_values.0.key`, `present_conv.0` and `past_conv.0`.
 */
export function cacheOutputs(
  inputs: readonly ValueSignature[],
  outputs: readonly ValueSignature[],
): ReadonlySet<string> {
  const types = new Map(inputs.map(({ name, type }) => [name, type]));
  const paired = ({ name, type }: ValueSignature) => {
    const rest = /^present(.*)/.exec(name)?.[1];
    if (rest === undefined || !OPAQUE_TYPES.includes(type)) return false;
    return [`past_key_values${rest}`, `past${rest}`].some((past) => types.get(past) === type);
  };
  return new Set(outputs.filter(paired).map(({ name }) => name));
}

/** What an opaque tensor holds in the place of data. */
class NativeHandle {
  constructor(readonly tensor: NativeTensor) {}
}

/**
 * Outputs that stay in native memory until a run takes them as inputs: immutable tensors, opaque outside, that any number of
 * runs and tensors share. Their memory is freed when they are disposed of, when their data are downloaded, with the
 * session, or by the garbage collector.
 */
export class NativeTensors {
  constructor(
    private readonly names: ReadonlySet<string>,
    /** Outputs that are sometimes an input unchanged. */
    private readonly passing: ReadonlyMap<string, readonly PassedValue[]>,
    private readonly ort: Pick<typeof Ort, 'Tensor'>,
  ) {}

  /** Whether an output stays in native memory. */
  has(name: string): boolean {
    return this.names.has(name);
  }

  /** Those of the outputs that a run would only copy from a native tensor that it is fed: tensors of the same memory. */
  passed(names: readonly string[], feeds: Feeds): Map<string, Tensor> {
    const tensors = new Map<string, Tensor>();
    for (const name of names) {
      if (!this.has(name)) continue;
      const passed = this.passing
        .get(name)
        ?.find(({ when }) => !when || scalarIs(feeds[when.input]!, when.value));
      const fed = passed && feeds[passed.input]!;
      const native = fed && nativeTensorOf(passed.input, fed);
      if (native) tensors.set(name, this.tensor(fed.type as ElementType, fed.dims, native.share()));
    }
    return tensors;
  }

  /** The opaque tensor of an output. */
  tensor(type: ElementType, dims: readonly number[], native: NativeTensor): Tensor {
    const { Tensor } = this.ort;
    // onnxruntime-common asks nothing of a GPU buffer but to be passed on.
    return Tensor.fromGpuBuffer(new NativeHandle(native) as never, {
      dataType: type as 'float32',
      dims,
      download: async () => {
        if (native.released) {
          throw new MxattnError(
            'this tensor was freed with its session; read it before the session is released',
          );
        }
        const { data } = typedData(elementTypeNumber(type)!, native.read());
        native.release();
        // Where JavaScript has a Float16Array, onnxruntime-common's tensors have it.
        return new Tensor(type, data as Float32Array, dims).data as Float32Array;
      },
      dispose: () => native.release(),
    });
  }
}

/**
 * The native tensor that is fed as an input, undefined for tensors of other kinds.
 *
 * @throws MxattnError when its memory was given up.
 */
export function nativeTensorOf(input: string, tensor: Tensor): NativeTensor | undefined {
  if (tensor.location !== 'gpu-buffer') return undefined;
  const buffer: unknown = tensor.gpuBuffer;
  if (!(buffer instanceof NativeHandle)) return undefined;
  if (buffer.tensor.released) {
    throw new MxattnError(
      `input "${input}" was freed with the session it came from; release that one later, or download the tensor before`,
    );
  }
  return buffer.tensor;
}

function scalarIs(tensor: Tensor, value: boolean): boolean {
  return tensor.location === 'cpu' && ((tensor.data as Uint8Array)[0] !== 0) === value;
}
