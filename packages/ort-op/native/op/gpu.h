// A session's use of a GPU: where it cannot be, the CPU kernel has to do, or the run fails.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "cpu/problem.h"
#include "hip/engine/engine.h"

namespace mxattn::op {

class GpuUse {
 public:
  // The GPU of that index (hip::listDevices). `required`: what it cannot do is an error. Throws std::runtime_error where it is
  // required and cannot be opened, or nothing compiles its kernels.
  GpuUse(size_t index, bool required);

  // Whether it did (see hip::Engine): false where the CPU kernel is to. After a failure it always is. Throws
  // std::runtime_error where the GPU is required.
  bool attend(const cpu::Problem& problem, hip::LayerCache* cache);

  // Why the CPU kernel had to, the first time; empty if it did not.
  std::string fallback() const;
  // Whether the GPU has not been given up.
  bool inUse() const;

 private:
  std::shared_ptr<hip::Engine> engine() const;
  void note(const std::string& why);
  void giveUp(const std::string& why);

  const bool required_;
  mutable std::mutex mutex_;
  std::shared_ptr<hip::Engine> engine_;
  std::string fallback_;
};

}  // namespace mxattn::op
