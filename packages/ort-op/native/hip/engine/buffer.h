// Memory on a device that has an owner.
#pragma once

#include <utility>

#include "hip/driver/device.h"

namespace mxattn::hip {

// To what operands and scratch memory begin at.
constexpr size_t kAlignment = 256;
constexpr size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

class Buffer {
 public:
  Buffer() = default;
  Buffer(Device& device, size_t bytes) : device_(&device), memory_(device.allocate(bytes)), bytes_(bytes) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer(std::move(other)).swap(*this);
    return *this;
  }
  ~Buffer() {
    if (memory_) device_->free(memory_);
  }

  Address at(size_t offset) const { return memory_ + offset; }
  size_t bytes() const { return bytes_; }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
  }

  Device* device_ = nullptr;
  Address memory_ = 0;
  size_t bytes_ = 0;
};

}  // namespace mxattn::hip
