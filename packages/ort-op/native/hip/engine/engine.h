// Attention of host tensors on a GPU. Memory and machine code stay for the next call: after the first of a size nothing is
// allocated.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cpu/problem.h"
#include "hip/driver/device.h"
#include "hip/engine/buffer.h"
#include "hip/engine/staging.h"

namespace mxattn::hip {

class LayerCache;

class Engine {
 public:
  explicit Engine(std::shared_ptr<Device> device);

  const DeviceFacts& facts() const { return device_->facts(); }
  // Throws DeviceError where there is none.
  std::string compiler();
  // Why a problem cannot be computed; empty if it can.
  std::string unsupported(const cpu::Problem& problem) const { return hip::unsupported(problem, facts().target); }

  // problem.out = attention. With a cache, key and value are new tokens, from problem.firstNewKey on, that are appended to
  // it. Calls take turns. Throws DeviceError; the cache is then as it was, unless the GPU is lost.
  void attend(const cpu::Problem& problem, LayerCache* cache = nullptr);

 private:
  friend class LayerCache;

  Device& device() { return *device_; }
  // Makes `to` a copy of the first tokens.
  void copy(const LayerCache& from, int64_t length, LayerCache& to);
  void read(const Buffer& memory, size_t offset, float* out, size_t bytes);
  // Memory that a cache has done with.
  void release(Buffer memory);

  // Makes a buffer that large; what it held is lost. Where the GPU has no more, memory of other calls is freed.
  void grow(Buffer& buffer, size_t bytes);
  Module& module(const std::vector<std::string>& defines);

  const std::shared_ptr<Device> device_;
  std::mutex turn_;
  Staging staging_;
  // Operands and scratch of the call.
  Buffer workspace_;
  // Where a cache goes next; then its old memory is the next one's.
  Buffer spare_;
  std::map<std::vector<std::string>, std::unique_ptr<Module>> modules_;
};

// The engine of the GPU of that index (see listDevices), shared by all who hold one. Throws DeviceError.
std::shared_ptr<Engine> openEngine(size_t index);

}  // namespace mxattn::hip
