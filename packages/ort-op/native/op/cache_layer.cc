#include "op/cache_layer.h"

#include <vector>

namespace mxattn::op {

CacheLayer::CacheLayer(const cpu::CacheShape& shape, const cpu::Build& build, std::shared_ptr<hip::Engine> engine)
    : host_(std::make_unique<cpu::LayerCache>(shape, build)) {
  if (!engine) return;
  gpu_ = std::make_unique<hip::LayerCache>(
      std::move(engine),
      hip::CacheShape{shape.batch, shape.kvHeads, shape.headSize, shape.valueHeadSize, shape.format});
}

cpu::LayerCache& CacheLayer::toHost(const cpu::Parallel& parallel, cpu::Scratch& scratch) {
  if (!gpu_) return *host_;
  if (int64_t tokens = gpu_->length()) {
    size_t rows = shape().batch * shape().kvHeads * tokens;
    std::vector<float> keys(rows * shape().headSize), values(rows * shape().valueHeadSize);
    gpu_->readKeys(keys.data());
    gpu_->readValues(values.data());
    host_->append(keys.data(), values.data(), tokens, parallel, scratch);
  }
  gpu_.reset();
  return *host_;
}

std::unique_ptr<CacheLayer> CacheLayer::fork(int64_t length) const {
  return std::unique_ptr<CacheLayer>(
      new CacheLayer(host_->fork(gpu_ ? 0 : length), gpu_ ? gpu_->fork(length) : nullptr));
}

void CacheLayer::readKeys(float* out) const {
  if (gpu_) gpu_->readKeys(out);
  else host_->readKeys(out);
}

void CacheLayer::readValues(float* out) const {
  if (gpu_) gpu_->readValues(out);
  else host_->readValues(out);
}

void CacheLayer::append(const float* key, const float* value, int64_t count, const cpu::Parallel& parallel,
                        cpu::Scratch& scratch) {
  if (gpu_) gpu_->append(key, value, count);
  else host_->append(key, value, count, parallel, scratch);
}

}  // namespace mxattn::op
