// AVX2 with AVX-VNNI: vpdpbusd multiplies 32 pairs of bytes and adds them up in fours.
#include <immintrin.h>

#include "cpu/includes.h"

namespace mxattn::cpu::avx_vnni {

#include "cpu/avx2.h"

// Added to key codes, so that a product of unsigned and signed bytes takes them.
constexpr uint8_t kKeyOffset = 128;

// acc + u . s in every lane, u unsigned bytes, s signed bytes. Assembly, since compilers spill the intrinsic's
// accumulators in a register tile.
MXATTN_INLINE Ints dot4(Ints acc, Ints u, Ints s) {
  __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(acc) : "x"(u), "x"(s));
  return acc;
}

#include "cpu/wide_sums.h"

#include "cpu/block_scaled.h"
#include "cpu/half.h"
#include "cpu/peak.h"
#include "cpu/byte_peak.h"
#include "cpu/kernel.h"

void run(const Problem& problem, const Parallel& parallel, Scratch& scratch) {
  attendWith<BlockScaledEngine>(problem, parallel, scratch);
}

}  // namespace mxattn::cpu::avx_vnni
