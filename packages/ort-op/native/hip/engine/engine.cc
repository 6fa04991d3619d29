#include "hip/engine/engine.h"

#include <algorithm>

#include "hip/engine/code_cache.h"
#include "hip/engine/kernel_source.h"
#include "hip/engine/layer_cache.h"

namespace mxattn::hip {
namespace {

// Places of operands in one piece of memory.
class Layout {
 public:
  size_t place(size_t bytes) {
    size_t offset = bytes_;
    bytes_ += aligned(bytes);
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

  cpu::Problem dense = problem;
  dense.firstNewKey = 0;
  Layout layout;
  std::vector<Piece> pieces;
  for (const Operand& operand : given) {
    size_t bytes = operand.elements * sizeof(float);
    pieces.push_back({operand.from, bytes, layout.place(bytes)});
  }
  size_t inBytes = layout.bytes();
  size_t out = layout.place(outBytes);
  size_t scratch = layout.place(outBytes == 0 ? 0 : scratchBytes(dense, facts().target));
  // The workspace last: it is what gives way.
  if (cache) grow(spare_, cache->places(problem.keyLength).end);
  grow(workspace_, layout.bytes());

  Operands operands{};
  for (size_t i = 0; i < std::size(given); i++) {
    if (given[i].from) operands.*given[i].address = workspace_.at(pieces[i].offset);
  }
  operands.out = workspace_.at(out);
  operands.scratch = workspace_.at(scratch);
  Address key = operands.key, value = operands.value;
  if (cache) {
    operands.key = spare_.at(0);
    operands.value = spare_.at(cache->places(problem.keyLength).value);
  }
  Plan plan;
  if (outBytes > 0) plan = makePlan(dense, facts().target, operands);
  // Compiled before anything is queued.
  Module* code = plan.launches.empty() ? nullptr : &module(plan.defines);
  staging_.copyIn(workspace_.at(0), pieces, inBytes);
  if (cache) cache->copy(spare_, problem.firstNewKey, key, value, keys);
  for (const Launch& launch : plan.launches) device_->launch(*code, launch);
  staging_.copyOut(problem.out, operands.out, outBytes);
  if (!cache) return;
  if (outBytes == 0) device_->synchronize();
  std::swap(cache->memory_, spare_);
  cache->length_ = problem.keyLength;
}

void Engine::copy(const LayerCache& from, int64_t length, LayerCache& to) {
  std::lock_guard<std::mutex> alone(turn_);
  grow(to.memory_, to.places(length).end);
  from.copy(to.memory_, length, 0, 0, 0);
  device_->synchronize();
  to.length_ = length;
}

void Engine::read(const Buffer& memory, size_t offset, float* out, size_t bytes) {
  std::lock_guard<std::mutex> alone(turn_);
  staging_.copyOut(out, memory.at(offset), bytes);
}

void Engine::release(Buffer memory) {
  std::lock_guard<std::mutex> alone(turn_);
  memory = Buffer();
}

void Engine::grow(Buffer& buffer, size_t bytes) {
  if (buffer.bytes() >= bytes) return;
  // Doubled, so that a cache that grows by a token asks rarely.
  size_t doubled = std::max(bytes, 2 * buffer.bytes());
  buffer = Buffer();
  try {
    buffer = Buffer(*device_, doubled);
  } catch (const DeviceError& error) {
    if (error.trouble != Trouble::kOutOfMemory) throw;
    workspace_ = Buffer();
    buffer = Buffer(*device_, bytes);
  }
}

Module& Engine::module(const std::vector<std::string>& defines) {
  std::unique_ptr<Module>& known = modules_[defines];
  if (!known) known = device_->load(compiledCode(*device_, kKernelSource, defines));
  return *known;
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
