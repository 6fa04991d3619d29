#include "addon/attention.h"

#include <string>

#include "cpu/dispatch.h"

namespace mxattn::addon {
namespace {

class AttentionWorker : public Napi::AsyncWorker {
 public:
  AttentionWorker(const Napi::CallbackInfo& info, std::shared_ptr<hip::Engine> engine)
      : Napi::AsyncWorker(info.Env()),
        deferred(Napi::Promise::Deferred::New(info.Env())),
        problem_(readProblem(info[0].As<Napi::Object>())),
        engine_(std::move(engine)) {
    Napi::Object from = info[0].As<Napi::Object>();
    if (from.Get("isa").IsString()) isa_ = from.Get("isa").As<Napi::String>().Utf8Value();
    Napi::Float32Array out = Napi::Float32Array::New(
        info.Env(), problem_.batch * problem_.heads * problem_.queryLength * problem_.valueHeadSize);
    problem_.out = out.Data();
    memory_ = Napi::Persistent(from);
    out_ = Napi::Persistent(out);
  }

  void Execute() override {
    try {
      if (engine_) {
        engine_->attend(problem_);
      } else {
        onCpu();
      }
    } catch (const std::exception& error) {
      SetError(error.what());
    }
  }

  void onCpu() {
    cpu::Parallel serial{nullptr, [](void*, size_t count, void* task, void (*call)(void*, size_t)) {
                           for (size_t i = 0; i < count; i++) call(task, i);
                         }};
    cpu::Scratch scratch;
    cpu::chooseBuild(isa_).kernel(problem_, serial, scratch);
  }

  void OnOK() override {
    Napi::HandleScope scope(Env());
    deferred.Resolve(out_.Value());
  }

  void OnError(const Napi::Error& error) override { deferred.Reject(error.Value()); }

  Napi::Promise::Deferred deferred;

 private:
  cpu::Problem problem_;
  std::shared_ptr<hip::Engine> engine_;
  // Keep the typed arrays' memory until the kernel is done.
  Napi::ObjectReference memory_;
  Napi::Reference<Napi::Float32Array> out_;
  std::string isa_;
};

Napi::Value queued(const Napi::CallbackInfo& info, std::shared_ptr<hip::Engine> engine) {
  auto* worker = new AttentionWorker(info, std::move(engine));
  Napi::Promise promise = worker->deferred.Promise();
  worker->Queue();
  return promise;
}

}  // namespace

cpu::Problem readProblem(const Napi::Object& from) {
  auto integer = [&](const char* name) { return from.Get(name).As<Napi::Number>().Int64Value(); };
  auto floats = [&](const char* name) -> const float* {
    return from.Get(name).IsTypedArray() ? from.Get(name).As<Napi::Float32Array>().Data() : nullptr;
  };
  cpu::Problem problem{};
  problem.query = floats("query");
  problem.key = floats("key");
  problem.value = floats("value");
  problem.bias = floats("bias");
  problem.sinks = floats("sinks");
  problem.batch = integer("batch");
  problem.heads = integer("heads");
  problem.kvHeads = integer("kvHeads");
  problem.queryLength = integer("queryLength");
  problem.keyLength = integer("keyLength");
  problem.headSize = integer("headSize");
  problem.valueHeadSize = integer("valueHeadSize");
  problem.scale = from.Get("scale").As<Napi::Number>().FloatValue();
  problem.softcap = from.Get("softcap").As<Napi::Number>().FloatValue();
  problem.causal = from.Get("causal").As<Napi::Boolean>().Value();
  problem.windowLeft = integer("windowLeft");
  problem.windowRight = integer("windowRight");
  problem.precision = static_cast<cpu::Precision>(integer("precision"));
  Napi::Array strides = from.Get("biasStrides").As<Napi::Array>();
  int64_t* to[] = {&problem.biasBatchStride, &problem.biasHeadStride, &problem.biasQueryStride, &problem.biasKeyStride};
  for (uint32_t i = 0; i < 4; i++) *to[i] = strides.Get(i).As<Napi::Number>().Int64Value();
  return problem;
}

Napi::Value attention(const Napi::CallbackInfo& info) { return queued(info, nullptr); }

Napi::Value attentionOnGpu(const Napi::CallbackInfo& info, std::shared_ptr<hip::Engine> engine) {
  return queued(info, std::move(engine));
}

}  // namespace mxattn::addon
