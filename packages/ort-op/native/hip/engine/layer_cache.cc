#include "hip/engine/layer_cache.h"

#include <algorithm>

namespace mxattn::hip {
namespace {

int64_t panelsOf(int64_t tokens) { return (tokens + kPanelTokens - 1) / kPanelTokens; }

}  // namespace

void LayerCache::reserve(int64_t length) {
  size_t panel = panelBytes(shape_);
  size_t needed = panelsOf(length) * panel;
  if (tail_.bytes() == 0 && tailBytes(shape_) > 0) tail_ = engine_->allocate(tailBytes(shape_));
  if (panels_.bytes() >= needed) return;
  Buffer grown;
  try {
    grown = engine_->allocate(std::max(needed, 2 * panels_.bytes()));
  } catch (const DeviceError& error) {
    if (error.trouble != Trouble::kOutOfMemory || needed >= 2 * panels_.bytes()) throw;
    grown = engine_->allocate(needed);
  }
  if (length_ > 0) engine_->device_->copyWithin(grown.at(0), panels_.at(0), panelsOf(length_) * panel);
  panels_ = std::move(grown);
}

}  // namespace mxattn::hip
