#include "cpu/dispatch.h"

#include <stdexcept>

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

namespace mxattn::cpu {

#define MXATTN_DECLARE_BUILD(name)                        \
  namespace name {                                        \
  void run(const Problem&, const Parallel&, Scratch&);    \
  void fromHalf(const uint16_t*, float*, size_t);         \
  void toHalf(const float*, uint16_t*, size_t);           \
  int64_t cacheTileBytes(const Problem&);                 \
  void append(const Problem&, const Parallel&, Scratch&); \
  void readKeys(const Problem&, Scratch&, float*);        \
  void readValues(const Problem&, Scratch&, float*);      \
  double floatPeak(double (*)());                         \
  double bytePeak(double (*)());                          \
  }
#if defined(__x86_64__)
MXATTN_DECLARE_BUILD(avx512_amx)
MXATTN_DECLARE_BUILD(avx512_bf16)
MXATTN_DECLARE_BUILD(avx512_vnni)
MXATTN_DECLARE_BUILD(avx512_bw)
MXATTN_DECLARE_BUILD(avx_vnni)
MXATTN_DECLARE_BUILD(avx2)
#elif defined(__aarch64__)
MXATTN_DECLARE_BUILD(neon)
#endif
MXATTN_DECLARE_BUILD(portable)

namespace {

#define MXATTN_BUILD(name, supported, space) \
  Build {                                                                                               \
    name, supported, space::run, space::fromHalf, space::toHalf, space::cacheTileBytes, space::append, \
        space::readKeys, space::readValues, space::floatPeak, space::bytePeak                          \
  }

#if defined(__x86_64__)
bool hasAvx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

bool hasAvxVnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return hasAvx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1) == 1;
}

bool hasAvx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma");
}

bool hasAvx512Vnni() { return hasAvx512() && __builtin_cpu_supports("avx512vnni"); }

bool hasAvx512Bf16() { return hasAvx512Vnni() && __builtin_cpu_supports("avx512bf16"); }

// Intel's vdpbf16ps takes as long as four multiply-adds of floats (measured on Sapphire Rapids), where it does the work of
// two.
bool hasFastBf16() { return hasAvx512Bf16() && !__builtin_cpu_is("intel"); }
bool hasSlowBf16() { return hasAvx512Bf16() && __builtin_cpu_is("intel"); }

// Tiles are large registers, which Linux saves only for processes that ask.
bool hasAmx() {
#if defined(__linux__)
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  unsigned a = 0, b = 0, c = 0, d = 0;
  bool tilesOfBytes = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 24 & 3) == 3;
  return tilesOfBytes && hasAvx512Bf16() && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}
#elif defined(__aarch64__)
bool hasDotProduct() {
#if defined(__linux__)
  constexpr unsigned long kDotProduct = 1ul << 20;  // HWCAP_ASIMDDP
  return (getauxval(AT_HWCAP) & kDotProduct) != 0;
#else
  return true;  // every Mac
#endif
}
#endif

}  // namespace

std::vector<Build> supportedBuilds() {
  static const std::vector<Build> supported = [] {
    std::vector<Build> builds;
    for (const Build& build : {
#if defined(__x86_64__)
             MXATTN_BUILD("avx512-amx", hasAmx, avx512_amx),
             MXATTN_BUILD("avx512-bf16", hasFastBf16, avx512_bf16),
             MXATTN_BUILD("avx512-vnni", hasAvx512Vnni, avx512_vnni),
             MXATTN_BUILD("avx512-bf16", hasSlowBf16, avx512_bf16),
             MXATTN_BUILD("avx-vnni", hasAvxVnni, avx_vnni),
             MXATTN_BUILD("avx512", hasAvx512, avx512_bw),
             MXATTN_BUILD("avx2", hasAvx2, avx2),
#elif defined(__aarch64__)
             MXATTN_BUILD("neon", hasDotProduct, neon),
#endif
             MXATTN_BUILD("portable", [] { return true; }, portable),
         }) {
      if (build.supported()) builds.push_back(build);
    }
    return builds;
  }();
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
