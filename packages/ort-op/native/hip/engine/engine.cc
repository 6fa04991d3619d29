#include "hip/engine/engine.h"

#include <algorithm>
#include <cstring>

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
  if (!p.bias || p.batch * p.heads * p.queryLength * p.keyLength == 0) return 0;
  return 1 + (p.batch - 1) * p.biasBatchStride + (p.heads - 1) * p.biasHeadStride +
         (p.queryLength - 1) * p.biasQueryStride + (p.keyLength - 1) * p.biasKeyStride;
}

int64_t panelsOf(int64_t tokens) { return (tokens + kPanelTokens - 1) / kPanelTokens; }

// Where the floats of so many tokens of a cache lie behind its keys', and where they end.
struct FloatBytes {
  size_t values;
  size_t end;
};

FloatBytes floatBytes(const CacheShape& shape, int64_t tokens) {
  size_t rows = shape.batch * shape.kvHeads * tokens * sizeof(float);
  size_t values = aligned(rows * shape.headSize);
  return {values, values + aligned(rows * shape.valueHeadSize)};
}

}  // namespace

Engine::Engine(std::shared_ptr<Device> device) : device_(std::move(device)), staging_(*device_) {}

std::string Engine::compiler() {
  std::lock_guard<std::mutex> alone(turn_);
  return device_->compiler();
}

void Engine::attend(const cpu::Problem& asked, LayerCache* cache) {
  std::lock_guard<std::mutex> alone(turn_);
  cpu::Problem problem = asked;
  // One zero for all is what the operator has where a model has no bias.
  if (biasElements(problem) == 1 && *problem.bias == 0) problem.bias = nullptr;
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
  // The workspace last: it is what gives way to a cache.
  if (cache) reserve(*cache, problem.keyLength);
  growWorkspace(layout.bytes());

  Operands operands{};
  for (size_t i = 0; i < std::size(given); i++) {
    if (given[i].from) operands.*given[i].address = workspace_.at(pieces[i].offset);
  }
  operands.out = workspace_.at(out);
  operands.scratch = workspace_.at(scratch);
  if (cache) {
    operands.panels = cache->panels_.at(0);
    operands.tail = cache->tail_.at(0);
  }
  Plan plan = makePlan(problem, facts().target, operands);
  // Compiled before anything is queued.
  Module& code = module(plan.defines);
  bool overwrites = cache && problem.keyLength / kPanelTokens != problem.firstNewKey / kPanelTokens;
  if (overwrites) device_->copyWithin(panel_.at(0), cache->tail_.at(0), cache->tail_.bytes());
  try {
    staging_.copyIn(workspace_.at(0), pieces, inBytes);
    launch(plan, code);
    staging_.copyOut(problem.out, operands.out, outBytes);
    if (outBytes == 0) device_->synchronize();
  } catch (const DeviceError&) {
    if (overwrites) restore(*cache);
    throw;
  }
  if (cache) cache->length_ = problem.keyLength;
}

void Engine::copy(const LayerCache& from, int64_t length, LayerCache& to) {
  std::lock_guard<std::mutex> alone(turn_);
  reserve(to, length);
  size_t panel = panelBytes(from.shape_);
  device_->copyWithin(to.panels_.at(0), from.panels_.at(0), panelsOf(length) * panel);
  int64_t last = length / kPanelTokens;
  if (last == from.length_ / kPanelTokens) {
    device_->copyWithin(to.tail_.at(0), from.tail_.at(0), from.tail_.bytes());
  } else if (length % kPanelTokens != 0) {
    // The floats of that panel are gone; its codes are the next best.
    Plan plan = makeReadPlan(from.shape_, kPanelTokens, from.panels_.at(last * panel), from.tail_.at(0), panel_.at(0),
                             to.tail_.at(0));
    launch(plan, module(plan.defines));
  }
  device_->synchronize();
  to.length_ = length;
}

void Engine::read(const LayerCache& cache, float* keys, float* values) {
  std::lock_guard<std::mutex> alone(turn_);
  const CacheShape& shape = cache.shape_;
  // In parts, where memory is scarce.
  const Buffer& room = workspace_.bytes() > panel_.bytes() ? workspace_ : panel_;
  int64_t step = kPanelTokens;
  while (step < cache.length_ && floatBytes(shape, 2 * step).end <= room.bytes()) step *= 2;
  std::vector<float> part(cache.heads() * step * std::max(shape.headSize, shape.valueHeadSize));
  for (int64_t first = 0; first < cache.length_; first += step) {
    int64_t tokens = std::min(step, cache.length_ - first);
    FloatBytes places = floatBytes(shape, tokens);
    Plan plan = makeReadPlan(shape, tokens, cache.panels_.at(first / kPanelTokens * panelBytes(shape)), cache.tail_.at(0),
                             room.at(0), room.at(places.values));
    launch(plan, module(plan.defines));
    auto take = [&](float* to, size_t offset, int64_t size) {
      if (!to) return;
      staging_.copyOut(part.data(), room.at(offset), cache.heads() * tokens * size * sizeof(float));
      for (size_t head = 0; head < cache.heads(); head++) {
        std::memcpy(to + (head * cache.length_ + first) * size, part.data() + head * tokens * size,
                    tokens * size * sizeof(float));
      }
    };
    take(keys, 0, shape.headSize);
    take(values, places.values, shape.valueHeadSize);
  }
}

void Engine::release(LayerCache& cache) {
  std::lock_guard<std::mutex> alone(turn_);
  cache.panels_ = Buffer();
  cache.tail_ = Buffer();
}

void Engine::reserve(LayerCache& cache, int64_t length) {
  size_t panel = panelBytes(cache.shape_), tail = tailBytes(cache.shape_), needed = panelsOf(length) * panel;
  if (cache.tail_.bytes() < tail) cache.tail_ = allocate(tail, tail);
  size_t floats = floatBytes(cache.shape_, kPanelTokens).end;
  if (panel_.bytes() < floats) panel_ = allocate(floats, floats);
  if (cache.panels_.bytes() >= needed) return;
  Buffer grown = allocate(std::max(needed, 2 * cache.panels_.bytes()), needed);
  if (cache.length_ > 0) device_->copyWithin(grown.at(0), cache.panels_.at(0), panelsOf(cache.length_) * panel);
  cache.panels_ = std::move(grown);
}

void Engine::restore(LayerCache& cache) noexcept {
  try {
    device_->copyWithin(cache.tail_.at(0), panel_.at(0), cache.tail_.bytes());
  } catch (const DeviceError&) {
    // Then the GPU is lost, and its caches with it.
  }
}

Buffer Engine::allocate(size_t wanted, size_t needed) {
  try {
    return Buffer(*device_, wanted);
  } catch (const DeviceError& error) {
    if (error.trouble != Trouble::kOutOfMemory) throw;
  }
  workspace_ = Buffer();
  return Buffer(*device_, needed);
}

void Engine::growWorkspace(size_t bytes) {
  if (workspace_.bytes() >= bytes) return;
  // A quarter more: with a cache that grows by a token the scratch memory does, too.
  size_t wanted = bytes + bytes / 4;
  workspace_ = Buffer();
  workspace_ = allocate(wanted, bytes);
}

void Engine::launch(const Plan& plan, Module& code) {
  for (const Launch& each : plan.launches) device_->launch(code, each);
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
