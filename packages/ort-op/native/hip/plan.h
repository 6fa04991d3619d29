// What a GPU has to launch for one attention: a list of kernels with their arguments. It allocates nothing and knows no
// driver, so that it is the same on HIP, on CUDA and in the emulation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cpu/problem.h"

namespace mxattn::hip {

// The GPU a plan is made for.
struct Target {
  // "gfx950", "gfx942", "gfx90a", "gfx1100", "gfx1201", ..., or "sm_90" under CUDA.
  std::string architecture;
  int waveSize;
  int multiprocessors;
  size_t sharedMemoryPerBlock;
};

// A precision of GPUs alone, without a cache; the id of the recipe in @mxattn/core.
constexpr cpu::Precision kMxfp6Direct = static_cast<cpu::Precision>(10);

// An address on the GPU; 0: none.
using Address = uint64_t;

// A packed cache of one layer: panels of 32 tokens of all heads, one behind the other, so that growing is one copy, and the
// tokens of the last, incomplete panel as floats.
struct CacheShape {
  int64_t batch;
  int64_t kvHeads;
  int64_t headSize;
  int64_t valueHeadSize;
  cpu::Precision format;
};

constexpr int64_t kPanelTokens = 32;
// A cache of n tokens has ceil(n / kPanelTokens) panels.
// Bytes of one panel, all heads, keys and values.
size_t panelBytes(const CacheShape& shape);
size_t tailBytes(const CacheShape& shape);

// Where the operands are. Dense f32, shapes as in cpu::Problem, whose own pointers are not read but for being null.
struct Operands {
  Address query;
  Address key;
  Address value;
  Address bias;
  Address sinks;
  Address out;
  // scratchBytes of memory, 256-byte aligned.
  Address scratch;
  // With a cache, which is where cpu::Problem::cache is not null: key and value are the new tokens, appended by the plan (see
  // cpu::Problem::firstNewKey). Without queries that is all it does.
  Address panels = 0;
  Address tail = 0;
};

struct Launch {
  // Name of the kernel in the source. It takes one argument, a struct by value, whose bytes are `arguments`.
  std::string kernel;
  uint32_t groups[3];
  uint32_t threads;
  uint32_t sharedBytes;
  std::vector<uint8_t> arguments;
};

struct Plan {
  // Compile-time choices as "-DNAME=VALUE"; with the architecture they decide the code object.
  std::vector<std::string> defines;
  // To be run one after the other.
  std::vector<Launch> launches;
};

// Why the kernels cannot compute a problem on a target; empty if they can.
std::string unsupported(const cpu::Problem& problem, const Target& target);
size_t scratchBytes(const cpu::Problem& problem, const Target& target);
Plan makePlan(const cpu::Problem& problem, const Target& target, const Operands& operands);
// The first tokens of a cache as floats: keys [batch, kvHeads, length, headSize], values alike.
Plan makeReadPlan(const CacheShape& shape, int64_t length, Address panels, Address tail, Address keys, Address values);

}  // namespace mxattn::hip
