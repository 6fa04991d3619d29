// A tensor that stays in ONNX Runtime's memory between runs, as a JavaScript object.
#pragma once

#include <napi.h>

#include <memory>
#include <unordered_set>

#include "ort/tensor.h"

namespace mxattn::addon {

class NativeTensor;

// The tensors that came from one session and are not released yet. Belongs to one JavaScript thread.
class NativeTensors {
 public:
  void releaseAll();

 private:
  friend class NativeTensor;
  std::unordered_set<NativeTensor*> all_;
};

// A tensor in the hands of whoever still needs it: JavaScript, runs in flight.
struct SharedTensor {
  ort::Tensor tensor;
  std::shared_ptr<ort::Value> value;
  std::shared_ptr<NativeTensors> session;
};

// NativeTensor: read() -> ArrayBuffer with a copy of the elements; share() -> another NativeTensor of the same memory;
// release() frees the memory as soon as no other and no run needs it; released: whether that was called, here or by the
// release of the session. The collector is told of the memory, and releases what it takes.
class NativeTensor : public Napi::ObjectWrap<NativeTensor> {
 public:
  static Napi::Function define(Napi::Env env);

  // info[0]: External<SharedTensor>, which is copied.
  explicit NativeTensor(const Napi::CallbackInfo& info);
  ~NativeTensor() override;

  // Throws Napi::Error after release().
  const SharedTensor& shared() const;
  void release();

 private:
  Napi::Value read(const Napi::CallbackInfo& info);
  Napi::Value share(const Napi::CallbackInfo& info);
  Napi::Value released(const Napi::CallbackInfo& info);
  void release(const Napi::CallbackInfo& info);

  SharedTensor shared_;
};

}  // namespace mxattn::addon
