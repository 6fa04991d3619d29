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

  // problem.out = attention. With a cache, which has described itself in the problem, key and value are appended to it first.
  // Calls take turns. Throws DeviceError; the cache is then as it was, unless the GPU is lost.
  void attend(const cpu::Problem& problem, LayerCache* cache = nullptr);

 private:
  friend class LayerCache;

  // Makes `to` a copy of the first tokens.
  void copy(const LayerCache& from, int64_t length, LayerCache& to);
  // Keys or values of all tokens, as floats; null: not them.
  void read(const LayerCache& cache, float* keys, float* values);
  // Frees its memory.
  void release(LayerCache& cache);

  // Makes room in a cache for so many tokens.
  void reserve(LayerCache& cache, int64_t length);
  // Puts back what a run that failed has overwritten.
  void restore(LayerCache& cache) noexcept;
  // Memory on the GPU: `wanted` bytes, or where it has no more, the call's memory is given up and it is `needed`.
  Buffer allocate(size_t wanted, size_t needed);
  void growWorkspace(size_t bytes);
  Module& module(const std::vector<std::string>& defines);
  void launch(const Plan& plan, Module& code);

  const std::shared_ptr<Device> device_;
  std::mutex turn_;
  Staging staging_;
  // Operands and scratch of the call.
  Buffer workspace_;
  // A panel of keys and values as floats: what a run overwrites of a cache, or some of what is read when there is no memory
  // left.
  Buffer panel_;
  std::map<std::vector<std::string>, std::unique_ptr<Module>> modules_;
};

// The engine of the GPU of that index (see listDevices), shared by all who hold one. Throws DeviceError.
std::shared_ptr<Engine> openEngine(size_t index);

}  // namespace mxattn::hip
