// The builds of the kernel, one per instruction set, and the choice among them at run time.
#pragma once

#include <string>
#include <vector>

#include "cpu/problem.h"
#include "cpu/scratch.h"

namespace mxattn::cpu {

using Kernel = void (*)(const Problem&, const Parallel&, Scratch&);
// IEEE binary16 to and from binary32, to nearest even.
using FromHalf = void (*)(const uint16_t* from, float* to, size_t count);
using ToHalf = void (*)(const float* from, uint16_t* to, size_t count);
// Operations a second of one thread; see peak.h.
using Peak = double (*)(double (*seconds)());

// Keys or values of the first problem.keyLength tokens of its cache, [batch * kvHeads, keyLength, size].
using ReadCache = void (*)(const Problem& problem, Scratch& scratch, float* out);

struct Build {
  // "avx512-amx", "avx512-bf16", "avx512-vnni", "avx-vnni", "avx512", "avx2", "neon" or "portable".
  const char* name;
  bool (*supported)();
  Kernel kernel;
  FromHalf fromHalf;
  ToHalf toHalf;
  // For KvCache: bytes of one head's tile, packing without attention, and the way back to floats.
  int64_t (*cacheTileBytes)(const Problem&);
  Kernel append;
  ReadCache readKeys;
  ReadCache readValues;
  Peak floatPeak;
  Peak bytePeak;
};

// Those this processor can run, fastest first; never empty.
std::vector<Build> supportedBuilds();

// The named build, or the fastest one for an empty name. Throws std::invalid_argument naming the builds to
// choose from when this processor cannot run it.
Build chooseBuild(const std::string& name);

}  // namespace mxattn::cpu
