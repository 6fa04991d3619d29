#include "op/cache_layer.h"

#include <vector>

namespace mxattn::op {

CacheLayer::CacheLayer(const cpu::CacheShape& shape, const cpu::Build& build, std::shared_ptr<hip::Engine> engine)
    : shape_(shape), build_(build) {
  // A GPU's kernels do not know binary16.
  if (engine && shape.format != cpu::CacheFormat::kFloat16) {
    gpu_ = std::make_unique<hip::LayerCache>(
        std::move(engine),
        hip::CacheShape{shape.batch, shape.kvHeads, shape.headSize, shape.valueHeadSize,
                        static_cast<cpu::Precision>(shape.format)});
  } else {
    host_ = std::make_unique<cpu::LayerCache>(shape, build);
  }
}

cpu::LayerCache& CacheLayer::toHost(const cpu::Parallel& parallel, cpu::Scratch& scratch) {
  if (host_) return *host_;
  auto host = std::make_unique<cpu::LayerCache>(shape_, build_);
  if (int64_t tokens = gpu_->length()) {
    size_t rows = shape_.batch * shape_.kvHeads * tokens;
    std::vector<float> keys(rows * shape_.headSize), values(rows * shape_.valueHeadSize);
    gpu_->readKeys(keys.data());
    gpu_->readValues(values.data());
    host->append(keys.data(), values.data(), tokens, parallel, scratch);
  }
  host_ = std::move(host);
  gpu_.reset();
  return *host_;
}

std::unique_ptr<CacheLayer> CacheLayer::fork(int64_t length) const {
  std::unique_ptr<CacheLayer> fork(new CacheLayer(shape_, build_));
  if (gpu_) fork->gpu_ = gpu_->fork(length);
  else fork->host_ = host_->fork(length);
  return fork;
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
