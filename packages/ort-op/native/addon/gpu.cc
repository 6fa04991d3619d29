#include "addon/gpu.h"

#include <memory>
#include <string>

#include "addon/attention.h"
#include "hip/engine/engine.h"

namespace mxattn::addon {
namespace {

class Gpu : public Napi::ObjectWrap<Gpu> {
 public:
  static Napi::Function define(Napi::Env env) {
    return DefineClass(env, "Gpu",
                       {
                           InstanceAccessor<&Gpu::compiler>("compiler"),
                           InstanceMethod<&Gpu::unsupported>("unsupported"),
                           InstanceMethod<&Gpu::attention>("attention"),
                           InstanceMethod<&Gpu::release>("release"),
                       });
  }

  explicit Gpu(const Napi::CallbackInfo& info) : Napi::ObjectWrap<Gpu>(info) {
    try {
      engine_ = hip::openEngine(info[0].As<Napi::Number>().Uint32Value());
    } catch (const std::exception& error) {
      throw Napi::Error::New(info.Env(), error.what());
    }
  }

 private:
  std::shared_ptr<hip::Engine> engine(const Napi::CallbackInfo& info) const {
    if (!engine_) throw Napi::Error::New(info.Env(), "this GPU was released");
    return engine_;
  }

  Napi::Value compiler(const Napi::CallbackInfo& info) {
    try {
      return Napi::String::New(info.Env(), engine(info)->compiler());
    } catch (const hip::DeviceError& error) {
      throw Napi::Error::New(info.Env(), error.what());
    }
  }

  Napi::Value unsupported(const Napi::CallbackInfo& info) {
    std::string why = engine(info)->unsupported(readProblem(info[0].As<Napi::Object>()));
    return why.empty() ? info.Env().Undefined() : Napi::String::New(info.Env(), why);
  }

  Napi::Value attention(const Napi::CallbackInfo& info) { return attentionOnGpu(info, engine(info)); }

  void release(const Napi::CallbackInfo&) { engine_.reset(); }

  std::shared_ptr<hip::Engine> engine_;
};

}  // namespace

Napi::Value listGpus(const Napi::CallbackInfo& info) {
  Napi::Env env = info.Env();
  hip::DeviceList list = hip::listDevices();
  Napi::Array gpus = Napi::Array::New(env);
  for (const hip::DeviceFacts& facts : list.devices) {
    Napi::Object gpu = Napi::Object::New(env);
    gpu.Set("driver", facts.driver);
    gpu.Set("name", facts.name);
    gpu.Set("architecture", facts.target.architecture);
    gpu.Set("memory", static_cast<double>(facts.totalMemory));
    gpu.Set("multiprocessors", facts.target.multiprocessors);
    gpus.Set(gpus.Length(), gpu);
  }
  Napi::Object result = Napi::Object::New(env);
  result.Set("gpus", gpus);
  result.Set("why", list.why);
  return result;
}

Napi::Function defineGpu(Napi::Env env) { return Gpu::define(env); }

}  // namespace mxattn::addon
