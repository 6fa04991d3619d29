// AVX-512 with BF16: vdpbf16ps multiplies 32 pairs of bfloat16 numbers and adds them up in twos.

// acc + a . b in every lane. Assembly for the reason given at dot4.
MXATTN_INLINE Floats addPairs(Floats acc, Ints a, Ints b) {
  __asm__("vdpbf16ps %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b));
  return acc;
}

#include "cpu/bf16_engine.h"
