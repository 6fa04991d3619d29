// What the builds with AVX-512 share: 16 lanes.

constexpr int kLanes = 16;
// 32 registers: sums, products and operands of a register tile.
constexpr int kFloatRows = 6;
constexpr int kFloatPanels = 4;
constexpr int kIntegerRows = 6;
constexpr int kIntegerPanels = 4;

#include "cpu/vector.h"

// Conversions below are the masked ones with a full mask: the others make GCC 12 warn of a variable of its own headers.

// Keeps the compiler from knowing a vector's value.
template <typename V>
MXATTN_INLINE void opaque(V& x) {
  __asm__("" : "+v"(x));
}

// Unsigned bytes, one for each lane.
MXATTN_INLINE Ints loadBytes(const uint8_t* from) {
  return reinterpret_cast<Ints>(_mm512_maskz_cvtepu8_epi32(0xffff, _mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
}

// kLanes numbers in IEEE binary16.
MXATTN_INLINE Floats loadNumbers(const uint16_t* from) {
  return reinterpret_cast<Floats>(_mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))));
}

// Looks up bytes in 0..15 in a table of 16.
class NibbleTable {
 public:
  explicit NibbleTable(const uint8_t (&table)[16])
      : table_(_mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)))) {}
  MXATTN_METHOD Ints at(Ints nibbles) const {
    return reinterpret_cast<Ints>(_mm512_shuffle_epi8(table_, reinterpret_cast<__m512i>(nibbles)));
  }

 private:
  __m512i table_;
};

// Whether a comparison holds in any lane.
MXATTN_INLINE bool anyLane(Ints mask) { return _mm512_movepi32_mask(reinterpret_cast<__m512i>(mask)) != 0; }

// 64 integers in 0..255 as bytes, in order, those above the limit as the limit.
MXATTN_INLINE void storeBytes(uint8_t* to, const Ints (&v)[4], uint8_t limit) {
  __m512i a = _mm512_packs_epi32(reinterpret_cast<__m512i>(v[0]), reinterpret_cast<__m512i>(v[1]));
  __m512i b = _mm512_packs_epi32(reinterpret_cast<__m512i>(v[2]), reinterpret_cast<__m512i>(v[3]));
  // Packing works within 128-bit lanes: four integers of each vector in turn.
  __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  __m512i bytes = _mm512_min_epu8(_mm512_packus_epi16(a, b), _mm512_set1_epi8(static_cast<char>(limit)));
  _mm512_storeu_si512(to, _mm512_permutexvar_epi32(order, bytes));
}
