import { create } from '@bufbuild/protobuf';
import { DataType, type ModelProto } from '../model/index.js';
import { copy } from '../model/messages.js';
import { ValueInfoProtoSchema } from '../model/onnx_pb.js';
import { type CachelessModel, withoutCache } from './cache-joins.js';

/** Graph input of a model with a native cache: the address of every layer's cache. */
export const cacheInput = 'mxattn.cache';

/**
 * Takes the key/value cache out of a converted model: instead of joining past and new keys to a `present` output, every
 * FusedAttention gets the new ones and the address of its cache. The model itself stays as it is.
 *
 * @returns The model, or the reason why the cache stays a matter of tensors.
 */
export function withNativeCache(model: ModelProto): CachelessModel | { readonly reason: string } {
  const cacheless = withoutCache(model, (node, { key, value }) => {
    const [query, , , bias, precision] = node.input as [string, string, string, string, string];
    return [copy(node, { input: [query, key, value, bias, precision, cacheInput] })];
  });
  if ('reason' in cacheless) return cacheless;
  const { graph } = cacheless.model;
  const addresses = create(ValueInfoProtoSchema, {
    name: cacheInput,
    type: {
      value: {
        case: 'tensorType',
        value: {
          elemType: DataType.INT64,
          shape: { dim: [{ value: { case: 'dimValue', value: BigInt(cacheless.layers.length) } }] },
        },
      },
    },
  });
  return {
    ...cacheless,
    model: copy(cacheless.model, { graph: copy(graph!, { input: [...graph!.input, addresses] }) }),
  };
}
