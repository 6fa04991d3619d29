#include "op/gpu.h"

#include <stdexcept>

namespace mxattn::op {

GpuUse::GpuUse(std::shared_ptr<hip::Engine> engine, bool required)
    : required_(required), engine_(std::move(engine)) {}

bool GpuUse::attend(const cpu::Problem& problem) {
  std::shared_ptr<hip::Engine> engine;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    engine = engine_;
  }
  if (!engine) return false;
  std::string why = engine->unsupported(problem);
  if (!why.empty()) {
    note("the GPU kernels do not compute " + why);
    return false;
  }
  try {
    engine->attend(problem);
    return true;
  } catch (const hip::DeviceError& error) {
    note(error.what());
  }
  std::lock_guard<std::mutex> lock(mutex_);
  engine_.reset();
  return false;
}

void GpuUse::note(const std::string& why) {
  if (required_) throw std::runtime_error(why);
  std::lock_guard<std::mutex> lock(mutex_);
  if (fallback_.empty()) fallback_ = why;
}

std::string GpuUse::fallback() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return fallback_;
}

}  // namespace mxattn::op
