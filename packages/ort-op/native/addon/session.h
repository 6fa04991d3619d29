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
// Session: run(inputs: { name, type, dims, data }[], outputs: string[], native: string[]) -> Promise<{ type, dims, data }[]>,
// first `outputs`, then `native`; release(), which also releases the native tensors that no run needs; gpuInUse: whether
// attention is computed on a GPU; gpuFallback: why the CPU kernel ran in its place, if it did. Element types are ONNX's
// numbers. The data of an input are a Uint8Array over the elements' bytes or a NativeTensor (native_tensor.h), used where
// they are; those of `outputs` are ArrayBuffers over ONNX Runtime's own memory, those of `native` NativeTensors.
Napi::Value createSession(const Napi::CallbackInfo& info);

// Registers the Session class with this environment.
void initialiseSession(Napi::Env env);

}  // namespace mxattn::addon
