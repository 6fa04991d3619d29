#include "hip/engine/engine.h"

#include <algorithm>

#include "hip/engine/code_cache.h"
#include "hip/engine/kernel_source.h"
#include "hip/engine/layer_cache.h"

namespace mxattn::hip {
namespace {

constexpr size_t kAlignment = 256;

// Places of operands in one piece of memory.
class Layout {
 public:
  size_t place(size_t bytes) {
    size_t offset = bytes_;
    bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return offset;
  }
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_ = 0;
};

// From the first to the last element that a broadcast bias has.
size_t biasElements(const cpu::Problem& p) {
  if (!p.bias) return 0;
  return 1 + (p.batch - 1) * p.biasBatchStride + (p.heads - 1) * p.biasHeadStride +
         (p.queryLength - 1) * p.biasQueryStride + (p.keyLength - 1) * p.biasKeyStride;
}

}  // namespace

Engine::Engine(std::shared_ptr<Device> device) : device_(std::move(device)), staging_(*device_) {}

std::string Engine::compiler() {
  std::lock_guard<std::mutex> alone(turn_);
  return device_->compiler();
}

void Engine::attend(const cpu::Problem& problem, LayerCache* cache) {
  std::lock_guard<std::mutex> alone(turn_);
  int64_t keys = problem.keyLength - (cache ? problem.firstNewKey : 0);
  struct Operand {
    const float* from;
    size_t elements;
    Address Operands::*address;
  };
  const Operand given[] = {
      {problem.query, static_cast<size_t>(problem.batch * problem.heads * problem.queryLength * problem.headSize),
       &Operands::query},
      {problem.key, static_cast<size_t>(problem.batch * problem.kvHeads * keys * problem.headSize), &Operands::key},
      {problem.value, static_cast<size_t>(problem.batch * problem.kvHeads * keys * problem.valueHeadSize),
       &Operands::value},
      {problem.bias, biasElements(problem), &Operands::bias},
      {problem.sinks, problem.sinks ? static_cast<size_t>(problem.heads) : 0, &Operands::sinks},
  };
  size_t outBytes = problem.batch * problem.heads * problem.queryLength * problem.valueHeadSize * sizeof(float);
  if (outBytes == 0 && !cache) return;

  Layout layout;
  std::vector<Piece> pieces;
  for (const Operand& operand : given) {
    size_t bytes = operand.elements * sizeof(float);
    pieces.push_back({operand.from, bytes, layout.place(bytes)});
  }
  size_t inBytes = layout.bytes();
  size_t out = layout.place(outBytes);
  size_t scratch = layout.place(scratchBytes(problem, facts().target));
  if (cache) cache->reserve(problem.keyLength);
  if (workspace_.bytes() < layout.bytes()) {
    workspace_ = Buffer();
    workspace_ = allocate(layout.bytes());
  }

  Operands operands{};
  for (size_t i = 0; i < std::size(given); i++) {
    if (given[i].from) operands.*given[i].address = workspace_.at(pieces[i].offset);
  }
  operands.out = workspace_.at(out);
  operands.scratch = workspace_.at(scratch);
  if (cache) cache->place(operands);
  // Compiled before anything is queued.
  Plan plan = makePlan(problem, facts().target, operands);
  module(plan.defines);
  staging_.copyIn(workspace_.at(0), pieces, inBytes);
  launch(plan);
  staging_.copyOut(problem.out, operands.out, outBytes);
  if (outBytes == 0) device_->synchronize();
}

Buffer Engine::allocate(size_t bytes) {
  try {
    return Buffer(*device_, bytes);
  } catch (const DeviceError& error) {
    if (error.trouble != Trouble::kOutOfMemory || workspace_.bytes() == 0) throw;
  }
  workspace_ = Buffer();
  return Buffer(*device_, bytes);
}

Module& Engine::module(const std::vector<std::string>& defines) {
  std::unique_ptr<Module>& known = modules_[defines];
  if (!known) known = device_->load(compiledCode(*device_, kKernelSource, defines));
  return *known;
}

void Engine::launch(const Plan& plan) {
  Module& code = module(plan.defines);
  for (const Launch& launch : plan.launches) device_->launch(code, launch);
}

std::shared_ptr<Engine> openEngine(size_t index) {
  static std::mutex mutex;
  static auto& engines = *new std::map<size_t, std::weak_ptr<Engine>>();
  std::lock_guard<std::mutex> lock(mutex);
  std::shared_ptr<Engine> engine = engines[index].lock();
  if (!engine) {
    engine = std::make_shared<Engine>(openDevice(index));
    engines[index] = engine;
  }
  return engine;
}

}  // namespace mxattn::hip
