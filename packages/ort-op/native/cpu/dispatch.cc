#include "cpu/dispatch.h"

#include <stdexcept>

namespace mxattn::cpu {

#define MXATTN_DECLARE_BUILD(name)                        \
  namespace name {                                        \
  void run(const Problem&, const Parallel&, Scratch&);    \
  void fromHalf(const uint16_t*, float*, size_t);         \
  void toHalf(const float*, uint16_t*, size_t);           \
  double floatPeak(double (*)());                         \
  double bytePeak(double (*)());                          \
  }
#if defined(__x86_64__)
MXATTN_DECLARE_BUILD(avx512_vnni)
MXATTN_DECLARE_BUILD(avx2)
#endif
MXATTN_DECLARE_BUILD(portable)

std::vector<Build> supportedBuilds() {
  static const Build builds[] = {
#if defined(__x86_64__)
      {"avx512-vnni",
       [] {
         return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                __builtin_cpu_supports("avx512vnni");
       },
       avx512_vnni::run, avx512_vnni::fromHalf, avx512_vnni::toHalf, avx512_vnni::floatPeak, avx512_vnni::bytePeak},
      {"avx2", [] { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }, avx2::run,
       avx2::fromHalf, avx2::toHalf, avx2::floatPeak, avx2::bytePeak},
#endif
      {"portable", [] { return true; }, portable::run, portable::fromHalf, portable::toHalf,
       portable::floatPeak, portable::bytePeak},
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
