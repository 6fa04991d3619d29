#include "addon/native_tensor.h"

#include <cstring>

namespace mxattn::addon {

void NativeTensors::releaseAll() {
  auto all = std::move(all_);
  for (NativeTensor* tensor : all) tensor->release();
}

Napi::Function NativeTensor::define(Napi::Env env) {
  return DefineClass(env, "NativeTensor",
                     {
                         InstanceMethod<&NativeTensor::read>("read"),
                         InstanceMethod<&NativeTensor::share>("share"),
                         InstanceMethod<&NativeTensor::release>("release"),
                         InstanceAccessor<&NativeTensor::released>("released"),
                     });
}

NativeTensor::NativeTensor(const Napi::CallbackInfo& info)
    : Napi::ObjectWrap<NativeTensor>(info), shared_(*info[0].As<Napi::External<SharedTensor>>().Data()) {
  shared_.session->all_.insert(this);
  Napi::MemoryManagement::AdjustExternalMemory(Env(), static_cast<int64_t>(shared_.tensor.bytes));
}

NativeTensor::~NativeTensor() { release(); }

const SharedTensor& NativeTensor::shared() const {
  if (!shared_.value) throw Napi::Error::New(Env(), "this tensor was released");
  return shared_;
}

void NativeTensor::release() {
  if (!shared_.value) return;
  shared_.session->all_.erase(this);
  Napi::MemoryManagement::AdjustExternalMemory(Env(), -static_cast<int64_t>(shared_.tensor.bytes));
  shared_ = {};
}

Napi::Value NativeTensor::read(const Napi::CallbackInfo& info) {
  const ort::Tensor& tensor = shared().tensor;
  Napi::ArrayBuffer copy = Napi::ArrayBuffer::New(info.Env(), tensor.bytes);
  if (tensor.bytes > 0) std::memcpy(copy.Data(), tensor.data, tensor.bytes);
  return copy;
}

Napi::Value NativeTensor::share(const Napi::CallbackInfo& info) {
  SharedTensor copy = shared();
  return Value().Get("constructor").As<Napi::Function>().New({Napi::External<SharedTensor>::New(info.Env(), &copy)});
}

Napi::Value NativeTensor::released(const Napi::CallbackInfo& info) {
  return Napi::Boolean::New(info.Env(), !shared_.value);
}

void NativeTensor::release(const Napi::CallbackInfo&) { release(); }

}  // namespace mxattn::addon
