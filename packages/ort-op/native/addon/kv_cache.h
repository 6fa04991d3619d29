// The cache of all layers of a session, as a JavaScript object.
#pragma once

#include <napi.h>

namespace mxattn::addon {

// new KvCache(layers: { batch, kvHeads, headSize, valueHeadSize, format }[], isa, gpu?: index in listGpus())
//
// length: number of tokens in every layer; bytes: memory held, by the host or the GPU; addresses: BigInt64Array for the operator's input
// `cache`; fork(length) -> KvCache with a copy of the first tokens; append(layer, key, value, count) with Float32Arrays
// [batch, kvHeads, count, size]; keys(layer), values(layer) -> Float32Array; release() frees the memory at once.
// The collector is told how much memory hangs on the object.
Napi::Function defineKvCache(Napi::Env env);

}  // namespace mxattn::addon
