// AVX-512 with VNNI: vpdpbusd multiplies 64 pairs of bytes and adds them up in fours.

// acc + u . s in every lane, u unsigned bytes, s signed bytes. Assembly, since compilers spill the intrinsic's
// accumulators in a register tile.
MXATTN_INLINE Ints dot4(Ints acc, Ints u, Ints s) {
  __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(u), "v"(s));
  return acc;
}

#include "cpu/wide_sums.h"
