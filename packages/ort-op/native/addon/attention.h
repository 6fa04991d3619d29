// The CPU kernel called directly on typed arrays: the `native` backend of @mxattn/core.
#pragma once

#include <napi.h>

namespace mxattn::addon {

// attention(problem) -> Promise<Float32Array>
//
// problem: { query, key, value: Float32Array in BHSD order, batch, heads, kvHeads, queryLength, keyLength, headSize,
// valueHeadSize, scale, precision (id), isa, softcap, causal, windowLeft, windowRight (-1: no limit),
// bias?: Float32Array, biasStrides: [batch, head, query, key], sinks?: Float32Array }. Lengths are the caller's to
// check. One thread, off the event loop.
Napi::Value attention(const Napi::CallbackInfo& info);

}  // namespace mxattn::addon
