// The keys and values of one layer of a session: on the GPU while that serves, else packed in the host's memory.
#pragma once

#include <memory>

#include "cpu/kv_cache.h"
#include "hip/engine/engine.h"
#include "hip/engine/layer_cache.h"

namespace mxattn::op {

class CacheLayer {
 public:
  // On the host without an engine.
  CacheLayer(const cpu::CacheShape& shape, const cpu::Build& build, std::shared_ptr<hip::Engine> engine);

  const cpu::CacheShape& shape() const { return shape_; }
  int64_t length() const { return gpu_ ? gpu_->length() : host_->length(); }
  size_t bytes() const { return gpu_ ? gpu_->bytes() : host_->bytes(); }

  // Null once it is on the host.
  hip::LayerCache* onGpu() { return gpu_.get(); }
  // Moves there what is on the GPU. Throws DeviceError where that is lost.
  cpu::LayerCache& toHost(const cpu::Parallel& parallel, cpu::Scratch& scratch);

  // See cpu::LayerCache. On the GPU they throw DeviceError.
  std::unique_ptr<CacheLayer> fork(int64_t length) const;
  void readKeys(float* out) const;
  void readValues(float* out) const;
  void append(const float* key, const float* value, int64_t count, const cpu::Parallel& parallel, cpu::Scratch& scratch);

 private:
  CacheLayer(const cpu::CacheShape& shape, const cpu::Build& build) : shape_(shape), build_(build) {}

  const cpu::CacheShape shape_;
  const cpu::Build build_;
  // One of them.
  std::unique_ptr<cpu::LayerCache> host_;
  std::unique_ptr<hip::LayerCache> gpu_;
};

}  // namespace mxattn::op
