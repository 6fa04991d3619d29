// The keys and values of one layer on a GPU, packed in panels (plan.h), in memory whose size doubles. One owner at a time.
#pragma once

#include <cstdint>
#include <memory>

#include "cpu/problem.h"
#include "hip/engine/buffer.h"
#include "hip/plan.h"

namespace mxattn::hip {

class Engine;

class LayerCache {
 public:
  LayerCache(std::shared_ptr<Engine> engine, const CacheShape& shape);
  ~LayerCache();

  const CacheShape& shape() const { return shape_; }
  int64_t length() const { return length_; }
  // On the GPU, used or not.
  size_t bytes() const { return panels_.bytes() + tail_.bytes(); }

  // Makes the cache part of a problem whose key and value are `count` new tokens.
  void describe(cpu::Problem& problem, int64_t count) const;

  // Appends without attending. Throws DeviceError, like all below; the cache is then as it was, unless the GPU is lost.
  void append(const float* key, const float* value, int64_t count);
  // A copy of the first `length` tokens.
  std::unique_ptr<LayerCache> fork(int64_t length) const;
  // Keys [batch, kvHeads, length, headSize], or values, as floats.
  void readKeys(float* out) const;
  void readValues(float* out) const;

 private:
  friend class Engine;

  size_t heads() const { return shape_.batch * shape_.kvHeads; }

  const std::shared_ptr<Engine> engine_;
  const CacheShape shape_;
  int64_t length_ = 0;
  Buffer panels_;
  Buffer tail_;
};

}  // namespace mxattn::hip
