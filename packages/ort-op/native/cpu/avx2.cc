// AVX2: 8 lanes; bytes are multiplied and added in pairs to 16 bits, then to 32. Exact: |255 * 60 * 2| < 2^15.
#include <immintrin.h>

#include "cpu/includes.h"

namespace mxattn::cpu::avx2 {

constexpr int kLanes = 8;
// 16 registers.
constexpr int kFloatRows = 4;
constexpr int kFloatPanels = 2;
constexpr int kIntegerRows = 4;
constexpr int kIntegerPanels = 2;

#include "cpu/vector.h"

MXATTN_INLINE Ints dot4(Ints acc, Ints u, Ints s) {
  __m256i pairs = _mm256_maddubs_epi16(reinterpret_cast<__m256i>(u), reinterpret_cast<__m256i>(s));
  return acc + reinterpret_cast<Ints>(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

// Whether a comparison holds in any lane.
MXATTN_INLINE bool anyLane(Ints mask) { return _mm256_movemask_ps(reinterpret_cast<__m256>(mask)) != 0; }

#include "cpu/block_scaled.h"
#include "cpu/kernel.h"

}  // namespace mxattn::cpu::avx2
