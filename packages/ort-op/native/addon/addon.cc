// The module's exports. ../../src/native/addon.ts declares them for TypeScript.
#include <napi.h>

#include "addon/attention.h"
#include "addon/gpu.h"
#include "addon/kv_cache.h"
#include "addon/peaks.h"
#include "addon/session.h"
#include "cpu/dispatch.h"
#include "ort/library.h"

namespace mxattn::addon {

// isaLevels() -> names of the kernel builds this processor can run, fastest first
static Napi::Value isaLevels(const Napi::CallbackInfo& info) {
  Napi::Array names = Napi::Array::New(info.Env());
  for (const cpu::Build& build : cpu::supportedBuilds()) names.Set(names.Length(), build.name);
  return names;
}

// runtimeVersion(libraryPath) -> version of the ONNX Runtime library there, e.g. "1.30.0"
static Napi::Value runtimeVersion(const Napi::CallbackInfo& info) {
  try {
    return Napi::String::New(info.Env(), ort::openLibrary(info[0].As<Napi::String>().Utf8Value()).version);
  } catch (const std::exception& error) {
    throw Napi::Error::New(info.Env(), error.what());
  }
}

static Napi::Object initialise(Napi::Env env, Napi::Object exports) {
  initialiseSession(env);
  exports.Set("createSession", Napi::Function::New<createSession>(env));
  exports.Set("attention", Napi::Function::New<attention>(env));
  exports.Set("measurePeaks", Napi::Function::New<measurePeaks>(env));
  exports.Set("listGpus", Napi::Function::New<listGpus>(env));
  exports.Set("Gpu", defineGpu(env));
  exports.Set("KvCache", defineKvCache(env));
  exports.Set("isaLevels", Napi::Function::New<isaLevels>(env));
  exports.Set("runtimeVersion", Napi::Function::New<runtimeVersion>(env));
  return exports;
}

NODE_API_MODULE(mxattn, initialise)

}  // namespace mxattn::addon
