// What the builds with 256-bit vectors share: 8 lanes.

constexpr int kLanes = 8;
// 16 registers.
constexpr int kFloatRows = 6;
constexpr int kFloatPanels = 2;
constexpr int kIntegerRows = 6;
constexpr int kIntegerPanels = 2;

#include "cpu/vector.h"

// Keeps the compiler from knowing a vector's value.
template <typename V>
MXATTN_INLINE void opaque(V& x) {
  __asm__("" : "+x"(x));
}

// Unsigned bytes, one for each lane.
MXATTN_INLINE Ints loadBytes(const uint8_t* from) {
  return reinterpret_cast<Ints>(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
}

// kLanes numbers in IEEE binary16.
MXATTN_INLINE Floats loadNumbers(const uint16_t* from) {
  return reinterpret_cast<Floats>(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
}

// Looks up bytes in 0..15 in a table of 16.
class NibbleTable {
 public:
  explicit NibbleTable(const uint8_t (&table)[16])
      : table_(_mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)))) {}
  MXATTN_METHOD Ints at(Ints nibbles) const {
    return reinterpret_cast<Ints>(_mm256_shuffle_epi8(table_, reinterpret_cast<__m256i>(nibbles)));
  }

 private:
  __m256i table_;
};

// Whether a comparison holds in any lane.
MXATTN_INLINE bool anyLane(Ints mask) { return _mm256_movemask_ps(reinterpret_cast<__m256>(mask)) != 0; }

// 64 integers in 0..255 as bytes, in order, those above the limit as the limit.
MXATTN_INLINE void storeBytes(uint8_t* to, const Ints (&v)[8], uint8_t limit) {
  // Packing works within 128-bit lanes: four integers of each vector in turn.
  __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  for (int i = 0; i < 8; i += 4) {
    __m256i a = _mm256_packs_epi32(reinterpret_cast<__m256i>(v[i]), reinterpret_cast<__m256i>(v[i + 1]));
    __m256i b = _mm256_packs_epi32(reinterpret_cast<__m256i>(v[i + 2]), reinterpret_cast<__m256i>(v[i + 3]));
    __m256i bytes = _mm256_min_epu8(_mm256_packus_epi16(a, b), _mm256_set1_epi8(static_cast<char>(limit)));
    bytes = _mm256_permutevar8x32_epi32(bytes, order);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i * kLanes), bytes);
  }
}
