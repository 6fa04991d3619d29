// The builds of the kernel, one per instruction set, and the choice among them at run time.
#pragma once

#include <string>
#include <vector>

#include "cpu/problem.h"
#include "cpu/scratch.h"

namespace mxattn::cpu {

using Kernel = void (*)(const Problem&, const Parallel&, Scratch&);

struct Build {
  // "avx512-vnni", "avx2" or "portable".
  const char* name;
  bool (*supported)();
  Kernel kernel;
};

// Those this processor can run, fastest first; never empty.
std::vector<Build> supportedBuilds();

// The named build, or the fastest one for an empty name. Throws std::invalid_argument naming the builds to
// choose from when this processor cannot run it.
Build chooseBuild(const std::string& name);

}  // namespace mxattn::cpu
