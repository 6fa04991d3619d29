// The keys and values of one layer on a GPU, as floats: [batch * kvHeads, length, size] each, which is what a plan takes. A
// token more moves every head but the first; that is done while the heads are copied to another piece of memory, which the
// engine keeps for all layers. One owner at a time.
#pragma once

#include <cstdint>
#include <memory>

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
  size_t bytes() const { return memory_.bytes(); }

  // Appends without attending. Throws DeviceError, like all below; the cache is then as it was, unless the GPU is lost.
  void append(const float* key, const float* value, int64_t count);
  // A copy of the first `length` tokens.
  std::unique_ptr<LayerCache> fork(int64_t length) const;
  // Keys [batch, kvHeads, length, headSize], or values.
  void readKeys(float* out) const;
  void readValues(float* out) const;

 private:
  friend class Engine;

  // Where the keys and values of so many tokens lie, from the memory's beginning, and where they end.
  struct Places {
    size_t value;
    size_t end;
  };
  size_t heads() const { return shape_.batch * shape_.kvHeads; }
  Places places(int64_t length) const;
  // Queues copies of the first `length` tokens, and of `count` new ones behind them, to `to`. In the engine's turn.
  void copy(const Buffer& to, int64_t length, Address key, Address value, int64_t count) const;

  const std::shared_ptr<Engine> engine_;
  const CacheShape shape_;
  int64_t length_ = 0;
  Buffer memory_;
};

}  // namespace mxattn::hip
