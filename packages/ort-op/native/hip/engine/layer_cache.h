// The keys and values of one layer on a GPU, packed in panels (plan.h), which a capacity that doubles holds. One owner at a
// time.
#pragma once

#include <memory>

#include "hip/engine/engine.h"

namespace mxattn::hip {

class LayerCache {
 public:
  LayerCache(std::shared_ptr<Engine> engine, const CacheShape& shape) : engine_(std::move(engine)), shape_(shape) {}

  const CacheShape& shape() const { return shape_; }
  int64_t length() const { return length_; }
  // On the GPU, used or not.
  size_t bytes() const { return panels_.bytes() + tail_.bytes(); }

 private:
  friend class Engine;

  // Makes room for so many tokens. To be called in the engine's turn.
  void reserve(int64_t length);
  void place(Operands& operands) const {
    operands.panels = panels_.at(0);
    operands.tail = tail_.at(0);
  }

  std::shared_ptr<Engine> engine_;
  CacheShape shape_;
  int64_t length_ = 0;
  Buffer panels_;
  Buffer tail_;
};

}  // namespace mxattn::hip
