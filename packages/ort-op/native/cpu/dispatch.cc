#include "cpu/dispatch.h"

#include <stdexcept>

namespace mxattn::cpu {

#if defined(__x86_64__)
namespace avx512_vnni {
void run(const Problem&, const Parallel&, Scratch&);
}
namespace avx2 {
void run(const Problem&, const Parallel&, Scratch&);
}
#endif
namespace portable {
void run(const Problem&, const Parallel&, Scratch&);
}

std::vector<Build> supportedBuilds() {
  static const Build builds[] = {
#if defined(__x86_64__)
      {"avx512-vnni",
       [] {
         return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                __builtin_cpu_supports("avx512vnni");
       },
       avx512_vnni::run},
      {"avx2", [] { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }, avx2::run},
#endif
      {"portable", [] { return true; }, portable::run},
  };
  std::vector<Build> supported;
  for (const Build& build : builds) {
    if (build.supported()) supported.push_back(build);
  }
  return supported;
}

Build chooseBuild(const std::string& name) {
  std::vector<Build> builds = supportedBuilds();
  if (name.empty()) return builds.front();
  std::string names;
  for (const Build& build : builds) {
    if (name == build.name) return build;
    names += (names.empty() ? "" : ", ") + std::string(build.name);
  }
  throw std::invalid_argument("no kernel build \"" + name + "\" for this processor; it can run " + names);
}

}  // namespace mxattn::cpu
