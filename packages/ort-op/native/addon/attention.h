// The kernels called directly on typed arrays: the backends of @mxattn/core.
#pragma once

#include <napi.h>

#include <memory>

#include "cpu/problem.h"
#include "hip/engine/engine.h"

namespace mxattn::addon {

// attention(problem) -> Promise<Float32Array>
//
// problem: { query, key, value: Float32Array in BHSD order, batch, heads, kvHeads, queryLength, keyLength, headSize,
// valueHeadSize, scale, precision (id), isa, softcap, causal, windowLeft, windowRight (-1: no limit),
// bias?: Float32Array, biasStrides: [batch, head, query, key], sinks?: Float32Array }. Lengths are the caller's to
// check. One thread, off the event loop.
Napi::Value attention(const Napi::CallbackInfo& info);

// The same on a GPU.
Napi::Value attentionOnGpu(const Napi::CallbackInfo& info, std::shared_ptr<hip::Engine> engine);

// A problem without its output.
cpu::Problem readProblem(const Napi::Object& from);

}  // namespace mxattn::addon
