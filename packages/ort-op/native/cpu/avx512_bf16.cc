// AVX-512 with VNNI and BF16.
#include <immintrin.h>

#include "cpu/includes.h"

namespace mxattn::cpu::avx512_bf16 {

#include "cpu/avx512.h"
#include "cpu/avx512_dot.h"

// Added to key codes, so that a product of unsigned and signed bytes takes them.
constexpr uint8_t kKeyOffset = 128;

#include "cpu/block_scaled.h"
#include "cpu/half.h"
#include "cpu/kernel.h"
#include "cpu/avx512_pairs.h"
#include "cpu/peak.h"
#include "cpu/byte_peak.h"

void run(const Problem& problem, const Parallel& parallel, Scratch& scratch) {
  attendWith<BlockScaledEngine, Bf16Engine>(problem, parallel, scratch);
}

}  // namespace mxattn::cpu::avx512_bf16
