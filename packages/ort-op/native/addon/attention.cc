#include "addon/attention.h"

#include <string>

#include "cpu/dispatch.h"

namespace mxattn::addon {
namespace {

class AttentionWorker : public Napi::AsyncWorker {
 public:
  explicit AttentionWorker(const Napi::CallbackInfo& info)
      : Napi::AsyncWorker(info.Env()), deferred(Napi::Promise::Deferred::New(info.Env())) {
    Napi::Object from = info[0].As<Napi::Object>();
    auto integer = [&](const char* name) { return from.Get(name).As<Napi::Number>().Int64Value(); };
    auto floats = [&](const char* name) -> const float* {
      return from.Get(name).IsTypedArray() ? from.Get(name).As<Napi::Float32Array>().Data() : nullptr;
    };
    isa_ = from.Get("isa").As<Napi::String>().Utf8Value();
    problem_.query = floats("query");
    problem_.key = floats("key");
    problem_.value = floats("value");
    problem_.bias = floats("bias");
    problem_.sinks = floats("sinks");
    problem_.batch = integer("batch");
    problem_.heads = integer("heads");
    problem_.kvHeads = integer("kvHeads");
    problem_.queryLength = integer("queryLength");
    problem_.keyLength = integer("keyLength");
    problem_.headSize = integer("headSize");
    problem_.valueHeadSize = integer("valueHeadSize");
    problem_.scale = from.Get("scale").As<Napi::Number>().FloatValue();
    problem_.softcap = from.Get("softcap").As<Napi::Number>().FloatValue();
    problem_.causal = from.Get("causal").As<Napi::Boolean>().Value();
    problem_.windowLeft = integer("windowLeft");
    problem_.windowRight = integer("windowRight");
    problem_.precision = static_cast<cpu::Precision>(integer("precision"));
    Napi::Array strides = from.Get("biasStrides").As<Napi::Array>();
    int64_t* to[] = {&problem_.biasBatchStride, &problem_.biasHeadStride, &problem_.biasQueryStride,
                     &problem_.biasKeyStride};
    for (uint32_t i = 0; i < 4; i++) *to[i] = strides.Get(i).As<Napi::Number>().Int64Value();
    Napi::Float32Array out = Napi::Float32Array::New(
        info.Env(), problem_.batch * problem_.heads * problem_.queryLength * problem_.valueHeadSize);
    problem_.out = out.Data();
    memory_ = Napi::Persistent(from);
    out_ = Napi::Persistent(out);
  }

  void Execute() override {
    cpu::Parallel serial{nullptr, [](void*, size_t count, void* task, void (*call)(void*, size_t)) {
                           for (size_t i = 0; i < count; i++) call(task, i);
                         }};
    cpu::Scratch scratch;
    try {
      cpu::chooseBuild(isa_).kernel(problem_, serial, scratch);
    } catch (const std::exception& error) {
      SetError(error.what());
    }
  }

  void OnOK() override {
    Napi::HandleScope scope(Env());
    deferred.Resolve(out_.Value());
  }

  void OnError(const Napi::Error& error) override { deferred.Reject(error.Value()); }

  Napi::Promise::Deferred deferred;

 private:
  cpu::Problem problem_{};
  // Keep the typed arrays' memory until the kernel is done.
  Napi::ObjectReference memory_;
  Napi::Reference<Napi::Float32Array> out_;
  std::string isa_;
};

}  // namespace

Napi::Value attention(const Napi::CallbackInfo& info) {
  auto* worker = new AttentionWorker(info);
  Napi::Promise promise = worker->deferred.Promise();
  worker->Queue();
  return promise;
}

}  // namespace mxattn::addon
