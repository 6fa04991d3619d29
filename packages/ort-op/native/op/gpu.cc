#include "op/gpu.h"

#include <stdexcept>

namespace mxattn::op {

GpuUse::GpuUse(size_t index, bool required) : required_(required) {
  try {
    engine_ = hip::openEngine(index);
    engine_->compiler();
  } catch (const hip::DeviceError& error) {
    giveUp(error.what());
  }
}

bool GpuUse::attend(const cpu::Problem& problem, hip::LayerCache* cache) {
  std::shared_ptr<hip::Engine> gpu = engine();
  if (!gpu) return false;
  std::string why = gpu->unsupported(problem);
  if (!why.empty()) {
    note("the GPU kernels do not compute " + why);
    return false;
  }
  try {
    gpu->attend(problem, cache);
    return true;
  } catch (const hip::DeviceError& error) {
    giveUp(error.what());
    return false;
  }
}

void GpuUse::note(const std::string& why) {
  if (required_) throw std::runtime_error(why);
  std::lock_guard<std::mutex> lock(mutex_);
  if (fallback_.empty()) fallback_ = why;
}

void GpuUse::giveUp(const std::string& why) {
  note(why);
  std::lock_guard<std::mutex> lock(mutex_);
  engine_.reset();
}

std::shared_ptr<hip::Engine> GpuUse::engine() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return engine_;
}

std::string GpuUse::fallback() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return fallback_;
}

bool GpuUse::inUse() const { return engine() != nullptr; }

}  // namespace mxattn::op
