// An ONNX Runtime session with the FusedAttention operator, as a JavaScript object.
#pragma once

#include <napi.h>

namespace mxattn::addon {

// createSession(libraryPath, model: Uint8Array, options) -> Promise<Session>
//
// options: { isa, gpu (index in gpus(); none: the CPU kernel), gpuRequired (what it cannot do is an error),
// intraOpNumThreads, interOpNumThreads, graphOptimizationLevel, executionMode, enableMemPattern, enableCpuMemArena, logId,
// logSeverityLevel, freeDimensionOverrides, config: Record<string, string> }, all optional.
//
// Session: run(inputs: { name, type, dims, data }[], outputs: string[]) -> Promise<{ type, dims, data }[]>; release();
// gpuInUse: whether attention is computed on a GPU; gpuFallback: why the CPU kernel ran in its place, if it did. Element types are ONNX's numbers, data are Uint8Arrays
// over the elements' bytes. Input memory is used where it is; output memory is ONNX Runtime's own, without a copy.
Napi::Value createSession(const Napi::CallbackInfo& info);

// Registers the Session class with this environment.
void initialiseSession(Napi::Env env);

}  // namespace mxattn::addon
