#include "addon/session.h"

#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "addon/native_tensor.h"
#include "op/fused_attention.h"
#include "ort/library.h"
#include "ort/tensor.h"

namespace mxattn::addon {
namespace {

// Shared by the JavaScript object, the runs in flight, so that release() during a run is safe, and their outputs.
struct NativeSession {
  NativeSession(const ort::Library& l, cpu::Build build, const std::shared_ptr<op::GpuUse>& gpu)
      : library(l),
        floatOp(l.functions, build, ort::kFloat32, gpu),
        halfOp(l.functions, build, ort::kFloat16, gpu) {}
  ~NativeSession() {
    if (session) library.functions.ReleaseSession(session);
    if (domain) library.functions.ReleaseCustomOpDomain(domain);
  }

  const ort::Library& library;
  op::FusedAttention floatOp;
  op::FusedAttention halfOp;
  ort::CustomOpDomain* domain = nullptr;
  ort::Session* session = nullptr;
};

// What can run. Outputs do not keep the GPU.
struct OpenSession {
  std::shared_ptr<NativeSession> native;
  std::shared_ptr<op::GpuUse> gpu;
  std::shared_ptr<NativeTensors> tensors;
};

// Of one JavaScript environment.
struct EnvironmentData {
  Napi::FunctionReference sessionClass;
  Napi::FunctionReference nativeTensorClass;
};

struct Options {
  std::string isa;
  int gpu = -1;
  bool gpuRequired = false;
  int intraOpThreads = 0;
  int interOpThreads = 0;
  int optimizationLevel = 99;
  int executionMode = 0;
  int logSeverity = -1;
  bool memPattern = true;
  bool memArena = true;
  std::string logId;
  std::vector<std::pair<std::string, std::string>> config;
  std::vector<std::pair<std::string, int64_t>> freeDimensions;
};

Options readOptions(const Napi::Object& from) {
  Options options;
  auto number = [&](const char* name, int& to) {
    if (from.Get(name).IsNumber()) to = from.Get(name).As<Napi::Number>().Int32Value();
  };
  auto flag = [&](const char* name, bool& to) {
    if (from.Get(name).IsBoolean()) to = from.Get(name).As<Napi::Boolean>().Value();
  };
  auto text = [&](const char* name, std::string& to) {
    if (from.Get(name).IsString()) to = from.Get(name).As<Napi::String>().Utf8Value();
  };
  auto entries = [&](const char* name, auto&& each) {
    if (!from.Get(name).IsObject()) return;
    Napi::Object object = from.Get(name).As<Napi::Object>();
    Napi::Array names = object.GetPropertyNames();
    for (uint32_t i = 0; i < names.Length(); i++) {
      std::string key = names.Get(i).As<Napi::String>().Utf8Value();
      each(key, object.Get(key));
    }
  };
  text("isa", options.isa);
  text("logId", options.logId);
  number("gpu", options.gpu);
  flag("gpuRequired", options.gpuRequired);
  number("intraOpNumThreads", options.intraOpThreads);
  number("interOpNumThreads", options.interOpThreads);
  number("graphOptimizationLevel", options.optimizationLevel);
  number("executionMode", options.executionMode);
  number("logSeverityLevel", options.logSeverity);
  flag("enableMemPattern", options.memPattern);
  flag("enableCpuMemArena", options.memArena);
  entries("config", [&](const std::string& key, const Napi::Value& value) {
    options.config.emplace_back(key, value.ToString().Utf8Value());
  });
  entries("freeDimensionOverrides", [&](const std::string& key, const Napi::Value& value) {
    options.freeDimensions.emplace_back(key, value.ToNumber().Int64Value());
  });
  return options;
}

OpenSession openSession(const std::string& libraryPath, const Options& options, const void* model, size_t size) {
  const ort::Library& library = ort::openLibrary(libraryPath);
  const ort::Functions& ort = library.functions;
  std::shared_ptr<op::GpuUse> gpu;
  if (options.gpu >= 0) gpu = std::make_shared<op::GpuUse>(options.gpu, options.gpuRequired);
  auto native = std::make_shared<NativeSession>(library, cpu::chooseBuild(options.isa), gpu);
  ort::SessionOptions* raw;
  ort.check(ort.CreateSessionOptions(&raw));
  std::unique_ptr<ort::SessionOptions, void (*)(ort::SessionOptions*)> session(raw, ort.ReleaseSessionOptions);
  ort.check(ort.SetIntraOpNumThreads(raw, options.intraOpThreads));
  ort.check(ort.SetInterOpNumThreads(raw, options.interOpThreads));
  ort.check(ort.SetSessionGraphOptimizationLevel(raw, options.optimizationLevel));
  ort.check(ort.SetSessionExecutionMode(raw, options.executionMode));
  ort.check(options.memPattern ? ort.EnableMemPattern(raw) : ort.DisableMemPattern(raw));
  ort.check(options.memArena ? ort.EnableCpuMemArena(raw) : ort.DisableCpuMemArena(raw));
  if (options.logSeverity >= 0) ort.check(ort.SetSessionLogSeverityLevel(raw, options.logSeverity));
  if (!options.logId.empty()) ort.check(ort.SetSessionLogId(raw, options.logId.c_str()));
  for (const auto& [key, value] : options.config) {
    ort.check(ort.AddSessionConfigEntry(raw, key.c_str(), value.c_str()));
  }
  for (const auto& [name, size] : options.freeDimensions) {
    ort.check(ort.AddFreeDimensionOverrideByName(raw, name.c_str(), size));
  }
  ort.check(ort.CreateCustomOpDomain(op::kDomain, &native->domain));
  ort.check(ort.CustomOpDomain_Add(native->domain, &native->floatOp));
  ort.check(ort.CustomOpDomain_Add(native->domain, &native->halfOp));
  ort.check(ort.AddCustomOpDomain(raw, native->domain));
  // ONNX Runtime registers a domain with the whole process when the first session with it is created, and does so by a
  // look and a write that another thread may come between.
  static std::mutex creating;
  std::lock_guard<std::mutex> alone(creating);
  ort.check(ort.CreateSessionFromArray(library.env, model, size, raw, &native->session));
  return {std::move(native), std::move(gpu), std::make_shared<NativeTensors>()};
}

struct Input {
  std::string name;
  ort::ElementType type;
  std::vector<int64_t> dims;
  void* data;
  size_t bytes;
  // Keeps `data` of a native tensor until the run is over.
  std::shared_ptr<ort::Value> owner;
};

Napi::Array dimsArray(Napi::Env env, const std::vector<int64_t>& dims) {
  Napi::Array array = Napi::Array::New(env, dims.size());
  for (size_t i = 0; i < dims.size(); i++) array.Set(i, Napi::Number::New(env, static_cast<double>(dims[i])));
  return array;
}

class RunWorker : public Napi::AsyncWorker {
 public:
  // The outputs from number `firstNative` on become native tensors.
  RunWorker(Napi::Env env, OpenSession session, std::vector<Input> inputs, std::vector<std::string> outputs,
            size_t firstNative, const Napi::Object& keepAlive)
      : Napi::AsyncWorker(env),
        deferred(Napi::Promise::Deferred::New(env)),
        session_(std::move(session)),
        inputs_(std::move(inputs)),
        outputNames_(std::move(outputs)),
        firstNative_(firstNative),
        inputMemory_(Napi::Persistent(keepAlive)) {}

  void Execute() override {
    const std::shared_ptr<NativeSession>& native = session_.native;
    const ort::Functions& ort = native->library.functions;
    std::vector<const char*> inputNames, outputNames;
    std::vector<ort::Value*> values;
    std::vector<ort::Value*> results(outputNames_.size());
    try {
      for (Input& input : inputs_) {
        ort::Value* value;
        ort.check(ort.CreateTensorWithDataAsOrtValue(native->library.cpuMemory, input.data, input.bytes,
                                                     input.dims.data(), input.dims.size(), input.type, &value));
        inputNames.push_back(input.name.c_str());
        values.push_back(value);
      }
      for (const std::string& name : outputNames_) outputNames.push_back(name.c_str());
      ort.check(ort.Run(native->session, nullptr, inputNames.data(), values.data(), values.size(),
                        outputNames.data(), outputNames.size(), results.data()));
    } catch (const std::exception& error) {
      SetError(error.what());
    }
    for (ort::Value* value : values) ort.ReleaseValue(value);
    // Memory of the session, which has to outlive them.
    for (ort::Value* value : results) {
      outputs_.emplace_back(value, [native](ort::Value* value) {
        if (value) native->library.functions.ReleaseValue(value);
      });
    }
  }

  void OnOK() override {
    Napi::Env env = Env();
    Napi::HandleScope scope(env);
    try {
      Napi::Array results = Napi::Array::New(env, outputs_.size());
      for (size_t i = 0; i < outputs_.size(); i++) results.Set(i, takeOutput(env, i));
      deferred.Resolve(results);
    } catch (const std::exception& error) {
      deferred.Reject(Napi::Error::New(env, error.what()).Value());
    }
  }

  void OnError(const Napi::Error& error) override { deferred.Reject(error.Value()); }

  Napi::Promise::Deferred deferred;

 private:
  Napi::Object takeOutput(Napi::Env env, size_t index) {
    std::shared_ptr<ort::Value> value = std::move(outputs_[index]);
    ort::Tensor tensor;
    try {
      tensor = ort::describe(session_.native->library.functions, value.get());
    } catch (const std::exception& error) {
      throw std::runtime_error("output " + outputNames_[index] + ": " + error.what());
    }
    Napi::Object result = Napi::Object::New(env);
    result.Set("type", Napi::Number::New(env, tensor.type));
    result.Set("dims", dimsArray(env, tensor.dims));
    result.Set("data", index < firstNative_ ? arrayBuffer(env, tensor, std::move(value))
                                            : nativeTensor(env, std::move(tensor), std::move(value)));
    return result;
  }

  // The tensor's memory becomes the ArrayBuffer's; both go when the garbage collector takes the latter. The
  // collector is told of its size, or it would see only a small object.
  static Napi::Value arrayBuffer(Napi::Env env, const ort::Tensor& tensor, std::shared_ptr<ort::Value> value) {
    if (tensor.bytes == 0) return Napi::ArrayBuffer::New(env, 0);
    struct Owner {
      std::shared_ptr<ort::Value> value;
      int64_t bytes;
    };
    auto* owner = new Owner{std::move(value), static_cast<int64_t>(tensor.bytes)};
    Napi::MemoryManagement::AdjustExternalMemory(env, owner->bytes);
    return Napi::ArrayBuffer::New(
        env, tensor.data, tensor.bytes,
        [](Napi::BasicEnv env, void*, Owner* owner) {
          Napi::MemoryManagement::AdjustExternalMemory(env, -owner->bytes);
          delete owner;
        },
        owner);
  }

  Napi::Value nativeTensor(Napi::Env env, ort::Tensor tensor, std::shared_ptr<ort::Value> value) const {
    SharedTensor shared{std::move(tensor), std::move(value), session_.tensors};
    auto& data = *env.GetInstanceData<EnvironmentData>();
    return data.nativeTensorClass.New({Napi::External<SharedTensor>::New(env, &shared)});
  }

  OpenSession session_;
  std::vector<Input> inputs_;
  std::vector<std::string> outputNames_;
  size_t firstNative_;
  // Keeps the feeds' memory until the run is over.
  Napi::ObjectReference inputMemory_;
  std::vector<std::shared_ptr<ort::Value>> outputs_;
};

class Session : public Napi::ObjectWrap<Session> {
 public:
  static Napi::Function define(Napi::Env env) {
    return DefineClass(env, "NativeSession",
                       {InstanceMethod<&Session::run>("run"), InstanceMethod<&Session::release>("release"),
                        InstanceAccessor<&Session::gpuInUse>("gpuInUse"),
                        InstanceAccessor<&Session::gpuFallback>("gpuFallback")});
  }

  explicit Session(const Napi::CallbackInfo& info) : Napi::ObjectWrap<Session>(info) {
    session_ = *info[0].As<Napi::External<OpenSession>>().Data();
  }

 private:
  Napi::Value run(const Napi::CallbackInfo& info) {
    Napi::Env env = info.Env();
    if (!session_.native) throw Napi::Error::New(env, "this session was released");
    Napi::Array given = info[0].As<Napi::Array>();
    std::vector<Input> inputs;
    for (uint32_t i = 0; i < given.Length(); i++) {
      Napi::Object from = given.Get(i).As<Napi::Object>();
      Input input;
      input.name = from.Get("name").As<Napi::String>().Utf8Value();
      input.type = static_cast<ort::ElementType>(from.Get("type").As<Napi::Number>().Int32Value());
      Napi::Array dims = from.Get("dims").As<Napi::Array>();
      for (uint32_t d = 0; d < dims.Length(); d++) {
        input.dims.push_back(dims.Get(d).As<Napi::Number>().Int64Value());
      }
      Napi::Value data = from.Get("data");
      if (data.IsTypedArray()) {
        input.data = data.As<Napi::Uint8Array>().Data();
        input.bytes = data.As<Napi::Uint8Array>().ByteLength();
      } else {
        const SharedTensor& shared = NativeTensor::Unwrap(data.As<Napi::Object>())->shared();
        input.data = shared.tensor.data;
        input.bytes = shared.tensor.bytes;
        input.owner = shared.value;
      }
      inputs.push_back(std::move(input));
    }
    std::vector<std::string> outputs;
    auto request = [&](const Napi::Array& names) {
      for (uint32_t i = 0; i < names.Length(); i++) outputs.push_back(names.Get(i).As<Napi::String>().Utf8Value());
    };
    request(info[1].As<Napi::Array>());
    size_t firstNative = outputs.size();
    request(info[2].As<Napi::Array>());
    auto* worker = new RunWorker(env, session_, std::move(inputs), std::move(outputs), firstNative, given);
    Napi::Promise promise = worker->deferred.Promise();
    worker->Queue();
    return promise;
  }

  void release(const Napi::CallbackInfo&) {
    if (session_.tensors) session_.tensors->releaseAll();
    session_ = {};
  }

  Napi::Value gpuInUse(const Napi::CallbackInfo& info) {
    return Napi::Boolean::New(info.Env(), session_.gpu && session_.gpu->inUse());
  }

  Napi::Value gpuFallback(const Napi::CallbackInfo& info) {
    std::string why = session_.gpu ? session_.gpu->fallback() : "";
    return why.empty() ? info.Env().Undefined() : Napi::String::New(info.Env(), why);
  }

  OpenSession session_;
};

class CreateWorker : public Napi::AsyncWorker {
 public:
  CreateWorker(const Napi::CallbackInfo& info)
      : Napi::AsyncWorker(info.Env()),
        deferred(Napi::Promise::Deferred::New(info.Env())),
        library_(info[0].As<Napi::String>().Utf8Value()),
        options_(readOptions(info[2].As<Napi::Object>())) {
    Napi::Uint8Array model = info[1].As<Napi::Uint8Array>();
    modelMemory_ = Napi::Persistent(model.As<Napi::Object>());
    model_ = model.Data();
    size_ = model.ByteLength();
  }

  void Execute() override {
    try {
      session_ = openSession(library_, options_, model_, size_);
    } catch (const std::exception& error) {
      SetError(error.what());
    }
  }

  void OnOK() override {
    Napi::HandleScope scope(Env());
    auto& data = *Env().GetInstanceData<EnvironmentData>();
    auto handle = Napi::External<OpenSession>::New(Env(), &session_);
    deferred.Resolve(data.sessionClass.New({handle}));
  }

  void OnError(const Napi::Error& error) override { deferred.Reject(error.Value()); }

  Napi::Promise::Deferred deferred;

 private:
  std::string library_;
  Options options_;
  // Keeps the bytes until the session is created; ONNX Runtime copies what it needs.
  Napi::ObjectReference modelMemory_;
  const void* model_;
  size_t size_;
  OpenSession session_;
};

}  // namespace

Napi::Value createSession(const Napi::CallbackInfo& info) {
  auto* worker = new CreateWorker(info);
  Napi::Promise promise = worker->deferred.Promise();
  worker->Queue();
  return promise;
}

void initialiseSession(Napi::Env env) {
  auto* data = new EnvironmentData();
  data->sessionClass = Napi::Persistent(Session::define(env));
  data->nativeTensorClass = Napi::Persistent(NativeTensor::define(env));
  env.SetInstanceData(data);
}

}  // namespace mxattn::addon
