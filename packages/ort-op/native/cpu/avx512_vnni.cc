// AVX-512 with VNNI: 16 lanes, vpdpbusd multiplies 64 pairs of bytes and adds them up in fours.
#include <immintrin.h>

#include "cpu/includes.h"

namespace mxattn::cpu::avx512_vnni {

constexpr int kLanes = 16;
// 32 registers: sums, products and operands of a register tile.
constexpr int kFloatRows = 6;
constexpr int kFloatPanels = 4;
constexpr int kIntegerRows = 6;
constexpr int kIntegerPanels = 2;

#include "cpu/vector.h"

// acc + u . s in every lane, u unsigned bytes, s signed bytes. Assembly, since compilers spill the intrinsic's
// accumulators in a register tile.
MXATTN_INLINE Ints dot4(Ints acc, Ints u, Ints s) {
  __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(u), "v"(s));
  return acc;
}

// Whether a comparison holds in any lane.
MXATTN_INLINE bool anyLane(Ints mask) { return _mm512_movepi32_mask(reinterpret_cast<__m512i>(mask)) != 0; }

#include "cpu/block_scaled.h"
#include "cpu/kernel.h"

}  // namespace mxattn::cpu::avx512_vnni
