import { MxattnError } from '@mxattn/core';
import type { Tensor } from 'onnxruntime-common';
import type { ValueSignature } from '../model/index.js';
import type { NativeFeed } from '../native/addon.js';
import { cachedData } from './cache-tensors.js';
import { nativeTensorOf } from './native-tensors.js';
import { bytesOf, elementTypeNumber } from './tensors.js';

/** Tensors by input name. */
export type Feeds = Readonly<Record<string, Tensor>>;

/**
 * Checks feeds against the model's inputs and hands out their bytes, without a copy.
 *
 * @param isCache Inputs that are left out: the key/value cache.
 * @throws MxattnError naming the input: missing, unknown, of another type or shape, disposed of, or not in CPU memory.
 */
export function nativeFeeds(
  inputs: readonly ValueSignature[],
  feeds: Feeds,
  isCache: (name: string) => boolean,
): NativeFeed[] {
  for (const name of Object.keys(feeds)) {
    if (!inputs.some((input) => input.name === name)) {
      throw new MxattnError(
        `the model has no input "${name}"; its inputs are ${inputs.map((input) => input.name).join(', ')}`,
      );
    }
  }
  return inputs.filter(({ name }) => !isCache(name)).map((input) => nativeFeed(input, feeds[input.name]));
}

function nativeFeed(input: ValueSignature, tensor: Tensor | undefined): NativeFeed {
  const expected = `${input.type} [${input.dims.join(', ')}]`;
  if (!tensor) throw new MxattnError(`input "${input.name}" is missing; it is ${expected}`);
  const type = elementTypeNumber(tensor.type);
  const given = `${tensor.type} [${tensor.dims?.join(', ')}]`;
  if (type === undefined)
    throw new MxattnError(`input "${input.name}" is ${given}; this type is not supported`);
  const fits =
    tensor.type === input.type &&
    tensor.dims.length === input.dims.length &&
    input.dims.every((dim, axis) => typeof dim !== 'number' || dim === tensor.dims[axis]);
  if (!fits) throw new MxattnError(`input "${input.name}" is ${given}, but the model takes ${expected}`);
  return { name: input.name, type, dims: tensor.dims, data: feedData(input.name, tensor) };
}

function feedData(name: string, tensor: Tensor): NativeFeed['data'] {
  switch (tensor.location) {
    case 'cpu':
    case 'cpu-pinned':
      return bytesOf(tensor.data as Exclude<Tensor['data'], string[]>);
    case 'none':
      throw new MxattnError(
        `input "${name}" was disposed of; dispose of tensors when no run needs them any more`,
      );
    case 'gpu-buffer': {
      const native = nativeTensorOf(name, tensor);
      if (native) return native;
      // Of another session's native cache, which gives its data at once.
      const data = cachedData(tensor);
      if (data instanceof Float32Array) return bytesOf(data);
    }
  }
  throw new MxattnError(`input "${name}" lies in ${tensor.location}; download it to CPU memory first`);
}
