#include "addon/kv_cache.h"

#include <memory>
#include <string>
#include <vector>

#include "op/cache_layer.h"

namespace mxattn::addon {
namespace {

using Layers = std::vector<std::unique_ptr<op::CacheLayer>>;

class KvCache : public Napi::ObjectWrap<KvCache> {
 public:
  static Napi::Function define(Napi::Env env) {
    return DefineClass(env, "KvCache",
                       {
                           InstanceAccessor<&KvCache::length>("length"),
                           InstanceAccessor<&KvCache::bytes>("bytes"),
                           InstanceAccessor<&KvCache::addresses>("addresses"),
                           InstanceMethod<&KvCache::fork>("fork"),
                           InstanceMethod<&KvCache::append>("append"),
                           InstanceMethod<&KvCache::keys>("keys"),
                           InstanceMethod<&KvCache::values>("values"),
                           InstanceMethod<&KvCache::release>("release"),
                       });
  }

  explicit KvCache(const Napi::CallbackInfo& info) : Napi::ObjectWrap<KvCache>(info) {
    if (info[0].IsExternal()) {
      layers_ = std::move(*info[0].As<Napi::External<Layers>>().Data());
    } else {
      Napi::Array shapes = info[0].As<Napi::Array>();
      cpu::Build build = cpu::chooseBuild(info[1].As<Napi::String>().Utf8Value());
      std::shared_ptr<hip::Engine> gpu = info[2].IsNumber() ? engine(info) : nullptr;
      for (uint32_t i = 0; i < shapes.Length(); i++) {
        Napi::Object from = shapes.Get(i).As<Napi::Object>();
        auto integer = [&](const char* name) { return from.Get(name).As<Napi::Number>().Int64Value(); };
        cpu::CacheShape shape{integer("batch"), integer("kvHeads"), integer("headSize"), integer("valueHeadSize"),
                              static_cast<cpu::CacheFormat>(integer("format"))};
        layers_.push_back(std::make_unique<op::CacheLayer>(shape, build, gpu));
      }
    }
    account(info.Env());
  }

  ~KvCache() override { Napi::MemoryManagement::AdjustExternalMemory(Env(), -accounted_); }

 private:
  // A GPU's error becomes JavaScript's.
  template <typename Body>
  static void guarded(Napi::Env env, Body&& body) {
    try {
      body();
    } catch (const hip::DeviceError& error) {
      throw Napi::Error::New(env, error.what());
    }
  }

  static std::shared_ptr<hip::Engine> engine(const Napi::CallbackInfo& info) {
    std::shared_ptr<hip::Engine> opened;
    guarded(info.Env(), [&] { opened = hip::openEngine(info[2].As<Napi::Number>().Uint32Value()); });
    return opened;
  }

  // Tells the collector of memory that came or went.
  void account(Napi::Env env) {
    int64_t now = 0;
    for (const auto& layer : layers_) now += static_cast<int64_t>(layer->bytes());
    Napi::MemoryManagement::AdjustExternalMemory(env, now - accounted_);
    accounted_ = now;
  }

  Napi::Value length(const Napi::CallbackInfo& info) {
    return Napi::Number::New(info.Env(), layers_.empty() ? 0 : static_cast<double>(layers_[0]->length()));
  }

  Napi::Value bytes(const Napi::CallbackInfo& info) {
    account(info.Env());
    return Napi::Number::New(info.Env(), static_cast<double>(accounted_));
  }

  Napi::Value addresses(const Napi::CallbackInfo& info) {
    account(info.Env());
    Napi::BigInt64Array array = Napi::BigInt64Array::New(info.Env(), layers_.size());
    for (size_t i = 0; i < layers_.size(); i++) array[i] = reinterpret_cast<int64_t>(layers_[i].get());
    return array;
  }

  Napi::Value fork(const Napi::CallbackInfo& info) {
    int64_t length = info[0].As<Napi::Number>().Int64Value();
    Layers copies;
    guarded(info.Env(), [&] {
      for (const auto& layer : layers_) copies.push_back(layer->fork(length));
    });
    return Value().Get("constructor").As<Napi::Function>().New({Napi::External<Layers>::New(info.Env(), &copies)});
  }

  void append(const Napi::CallbackInfo& info) {
    cpu::Parallel serial{nullptr, [](void*, size_t count, void* task, void (*call)(void*, size_t)) {
                           for (size_t i = 0; i < count; i++) call(task, i);
                         }};
    cpu::Scratch scratch;
    op::CacheLayer& cache = layer(info);
    guarded(info.Env(), [&] {
      cache.append(info[1].As<Napi::Float32Array>().Data(), info[2].As<Napi::Float32Array>().Data(),
                   info[3].As<Napi::Number>().Int64Value(), serial, scratch);
    });
    account(info.Env());
  }

  Napi::Value keys(const Napi::CallbackInfo& info) {
    op::CacheLayer& cache = layer(info);
    Napi::Float32Array out = room(info.Env(), cache, cache.shape().headSize);
    guarded(info.Env(), [&] { cache.readKeys(out.Data()); });
    return out;
  }

  Napi::Value values(const Napi::CallbackInfo& info) {
    op::CacheLayer& cache = layer(info);
    Napi::Float32Array out = room(info.Env(), cache, cache.shape().valueHeadSize);
    guarded(info.Env(), [&] { cache.readValues(out.Data()); });
    return out;
  }

  void release(const Napi::CallbackInfo& info) {
    layers_.clear();
    account(info.Env());
  }

  op::CacheLayer& layer(const Napi::CallbackInfo& info) {
    uint32_t index = info[0].As<Napi::Number>().Uint32Value();
    if (index >= layers_.size()) throw Napi::Error::New(info.Env(), "this cache was released");
    return *layers_[index];
  }

  static Napi::Float32Array room(Napi::Env env, const op::CacheLayer& cache, int64_t size) {
    const cpu::CacheShape& shape = cache.shape();
    return Napi::Float32Array::New(env, shape.batch * shape.kvHeads * cache.length() * size);
  }

  Layers layers_;
  int64_t accounted_ = 0;
};

}  // namespace

Napi::Function defineKvCache(Napi::Env env) { return KvCache::define(env); }

}  // namespace mxattn::addon
