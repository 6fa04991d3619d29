#include "cpu/scratch.h"

namespace mxattn::cpu {

constexpr size_t kAlignment = 64;

Scratch::Lease::Lease(Scratch& owner, size_t size) : owner_(owner), buffer_(nullptr) {
  {
    std::lock_guard<std::mutex> lock(owner.mutex_);
    // The smallest buffer that is large enough, else the largest one, which then grows.
    size_t best = owner.free_.size();
    for (size_t i = 0; i < owner.free_.size(); i++) {
      if (best == owner.free_.size()) best = i;
      size_t have = owner.free_[i]->size(), chosen = owner.free_[best]->size();
      bool fits = have >= size + kAlignment, chosenFits = chosen >= size + kAlignment;
      if (fits ? !chosenFits || have < chosen : !chosenFits && have > chosen) best = i;
    }
    if (best < owner.free_.size()) {
      buffer_ = owner.free_[best];
      owner.free_[best] = owner.free_.back();
      owner.free_.pop_back();
    }
  }
  if (!buffer_) buffer_ = new std::vector<uint8_t>();
  if (buffer_->size() < size + kAlignment) {
    buffer_->clear();
    buffer_->resize(size + kAlignment);
  }
  auto address = reinterpret_cast<uintptr_t>(buffer_->data());
  data_ = reinterpret_cast<uint8_t*>((address + kAlignment - 1) & ~uintptr_t{kAlignment - 1});
}

Scratch::Lease::~Lease() {
  std::lock_guard<std::mutex> lock(owner_.mutex_);
  owner_.free_.push_back(buffer_);
}

Scratch::~Scratch() {
  for (auto* buffer : free_) delete buffer;
}

}  // namespace mxattn::cpu
