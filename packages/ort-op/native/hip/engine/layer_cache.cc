#include "hip/engine/layer_cache.h"

#include "hip/engine/engine.h"

namespace mxattn::hip {

LayerCache::LayerCache(std::shared_ptr<Engine> engine, const CacheShape& shape)
    : engine_(std::move(engine)), shape_(shape) {}

LayerCache::~LayerCache() { engine_->release(*this); }

void LayerCache::describe(cpu::Problem& problem, int64_t count) const {
  // Plans look at nothing of it but whether it is there.
  static const cpu::Tiles onGpu{};
  problem.cache = &onGpu;
  problem.cacheFormat = static_cast<cpu::CacheFormat>(shape_.format);
  problem.firstNewKey = length_;
  problem.keyLength = length_ + count;
}

void LayerCache::append(const float* key, const float* value, int64_t count) {
  cpu::Problem problem{};
  problem.batch = shape_.batch;
  problem.heads = problem.kvHeads = shape_.kvHeads;
  problem.headSize = shape_.headSize;
  problem.valueHeadSize = shape_.valueHeadSize;
  problem.precision = shape_.format;
  problem.key = key;
  problem.value = value;
  describe(problem, count);
  engine_->attend(problem, this);
}

std::unique_ptr<LayerCache> LayerCache::fork(int64_t length) const {
  auto fork = std::make_unique<LayerCache>(engine_, shape_);
  if (length > 0) engine_->copy(*this, length, *fork);
  return fork;
}

void LayerCache::readKeys(float* out) const { engine_->read(*this, out, nullptr); }
void LayerCache::readValues(float* out) const { engine_->read(*this, nullptr, out); }

}  // namespace mxattn::hip
