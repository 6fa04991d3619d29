// AVX2. Bytes are multiplied and added in pairs to 16 bits, in which sums of several products fit as well, so
// that only every few of them are widened to 32.
#include <immintrin.h>

#include "cpu/includes.h"

namespace mxattn::cpu::avx2 {

#include "cpu/avx2.h"

// Added to key codes, so that a product of unsigned and signed bytes takes them.
constexpr uint8_t kKeyOffset = 64;

// Products of a block of 32, in 16 bits: two sums of 16 products for each key or channel. A pair of products is exact:
// |124 * 120 * 2| < 2^15. Whether their sums are is for the caller to know.
constexpr bool kNarrowSums = true;
typedef Shorts Sums;

MXATTN_INLINE Sums multiplyAdd(Sums sums, Ints u, Ints s) {
  __m256i pairs = _mm256_maddubs_epi16(reinterpret_cast<__m256i>(u), reinterpret_cast<__m256i>(s));
  // May wrap around on the way: offsets are taken back in the same 16 bits.
  sums = reinterpret_cast<Sums>(_mm256_add_epi16(reinterpret_cast<__m256i>(sums), pairs));
  // Else compilers form all products of a block first and add them up later, for which there are not enough registers.
  opaque(sums);
  return sums;
}

// Both sums of every lane times its weights, two 16-bit numbers, added up.
MXATTN_INLINE Ints widen(Sums sums, Ints weights) {
  return reinterpret_cast<Ints>(
      _mm256_madd_epi16(reinterpret_cast<__m256i>(sums), reinterpret_cast<__m256i>(weights)));
}

MXATTN_INLINE Ints dot4(Ints acc, Ints u, Ints s) {
  __m256i pairs = _mm256_maddubs_epi16(reinterpret_cast<__m256i>(u), reinterpret_cast<__m256i>(s));
  return acc + reinterpret_cast<Ints>(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

#include "cpu/block_scaled.h"
#include "cpu/half.h"
#include "cpu/peak.h"
#include "cpu/byte_peak.h"
#include "cpu/kernel.h"

void run(const Problem& problem, const Parallel& parallel, Scratch& scratch) {
  attendWith<BlockScaledEngine>(problem, parallel, scratch);
}

}  // namespace mxattn::cpu::avx2
