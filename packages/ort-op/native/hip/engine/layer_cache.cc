#include "hip/engine/layer_cache.h"

#include "hip/engine/engine.h"

namespace mxattn::hip {

LayerCache::LayerCache(std::shared_ptr<Engine> engine, const CacheShape& shape)
    : engine_(std::move(engine)), shape_(shape) {}

LayerCache::~LayerCache() { engine_->release(std::move(memory_)); }

LayerCache::Places LayerCache::places(int64_t length) const {
  size_t value = aligned(heads() * length * shape_.headSize * sizeof(float));
  return {value, value + aligned(heads() * length * shape_.valueHeadSize * sizeof(float))};
}

void LayerCache::copy(const Buffer& to, int64_t length, Address key, Address value, int64_t count) const {
  Places before = places(length_), after = places(length + count);
  struct Part {
    size_t from, to, size;
    Address added;
  };
  const Part parts[] = {{0, 0, shape_.headSize * sizeof(float), key},
                        {before.value, after.value, shape_.valueHeadSize * sizeof(float), value}};
  Device& device = engine_->device();
  for (const Part& part : parts) {
    size_t pitch = (length + count) * part.size;
    if (length > 0) {
      device.copyWithin(to.at(part.to), pitch, memory_.at(part.from), length_ * part.size, length * part.size, heads());
    }
    if (count > 0) {
      device.copyWithin(to.at(part.to) + length * part.size, pitch, part.added, count * part.size, count * part.size,
                        heads());
    }
  }
}

void LayerCache::append(const float* key, const float* value, int64_t count) {
  cpu::Problem nothing{};
  nothing.batch = shape_.batch;
  nothing.heads = nothing.kvHeads = shape_.kvHeads;
  nothing.headSize = shape_.headSize;
  nothing.valueHeadSize = shape_.valueHeadSize;
  nothing.key = key;
  nothing.value = value;
  nothing.firstNewKey = length_;
  nothing.keyLength = length_ + count;
  engine_->attend(nothing, this);
}

std::unique_ptr<LayerCache> LayerCache::fork(int64_t length) const {
  auto fork = std::make_unique<LayerCache>(engine_, shape_);
  if (length > 0) engine_->copy(*this, length, *fork);
  return fork;
}

void LayerCache::readKeys(float* out) const {
  engine_->read(memory_, 0, out, heads() * length_ * shape_.headSize * sizeof(float));
}

void LayerCache::readValues(float* out) const {
  engine_->read(memory_, places(length_).value, out, heads() * length_ * shape_.valueHeadSize * sizeof(float));
}

}  // namespace mxattn::hip
