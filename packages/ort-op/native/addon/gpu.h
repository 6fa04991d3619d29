// The GPUs of this machine, as JavaScript sees them.
#pragma once

#include <napi.h>

namespace mxattn::addon {

// listGpus() -> { gpus: { driver, name, architecture, memory, multiprocessors }[], why: string }, `why` the reason of each
// driver that gives none.
Napi::Value listGpus(const Napi::CallbackInfo& info);

// new Gpu(index in listGpus().gpus)
//
// compiler: name and version of what compiles the kernels (throws if it is missing); unsupported(problem) -> why it cannot
// be computed, or undefined; attention(problem) -> Promise<Float32Array>, see attention.h; release() gives up its memory when
// no run is on.
Napi::Function defineGpu(Napi::Env env);

}  // namespace mxattn::addon
