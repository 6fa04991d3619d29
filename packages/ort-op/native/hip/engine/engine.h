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

  // problem.out = attention. With a cache, key and value are new tokens that are appended to it first. Calls take turns.
  // Throws DeviceError; the cache is then as it was, unless the device is lost.
  void attend(const cpu::Problem& problem, LayerCache* cache = nullptr);

 private:
  friend class LayerCache;

  // Memory that other uses of it give way to.
  Buffer allocate(size_t bytes);
  Module& module(const std::vector<std::string>& defines);
  void launch(const Plan& plan);

  const std::shared_ptr<Device> device_;
  std::mutex turn_;
  Staging staging_;
  // Operands and scratch of the call.
  Buffer workspace_;
  std::map<std::vector<std::string>, std::unique_ptr<Module>> modules_;
};

// The engine of the GPU of that index (see listDevices), shared by all who hold one. Throws DeviceError.
std::shared_ptr<Engine> openEngine(size_t index);

}  // namespace mxattn::hip
