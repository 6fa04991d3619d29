// Plain C++ for any processor.
#include "cpu/includes.h"

namespace mxattn::cpu::portable {

constexpr int kLanes = 4;
constexpr int kFloatRows = 4;
constexpr int kFloatPanels = 2;
constexpr int kIntegerRows = 2;
constexpr int kIntegerPanels = 2;

#include "cpu/vector.h"

// Added to key codes, so that a product of unsigned and signed bytes takes them.
constexpr uint8_t kKeyOffset = 128;

// Keeps the compiler from knowing a vector's value.
template <typename V>
MXATTN_INLINE void opaque(V& x) {
  __asm__("" : "+m"(x));
}

// acc + u . s in every lane, u unsigned bytes, s signed bytes, in 16-bit products of even and odd bytes: vectors of
// those are multiplied everywhere. Exact: |255 * 128| < 2^15.
MXATTN_INLINE Ints dot4(Ints acc, Ints u, Ints s) {
  Shorts a = reinterpret_cast<Shorts>(u), b = reinterpret_cast<Shorts>(s);
  Ints even = reinterpret_cast<Ints>((a & 0xff) * ((b << 8) >> 8));
  Ints odd = reinterpret_cast<Ints>(((a >> 8) & 0xff) * (b >> 8));
  return acc + ((even << 16) >> 16) + (even >> 16) + ((odd << 16) >> 16) + (odd >> 16);
}

#include "cpu/wide_sums.h"
#include "cpu/half.h"

// Unsigned bytes, one for each lane.
MXATTN_INLINE Ints loadBytes(const uint8_t* from) {
  Ints x;
  for (int j = 0; j < kLanes; j++) x[j] = from[j];
  return x;
}

// kLanes numbers in IEEE binary16.
MXATTN_INLINE Floats loadNumbers(const uint16_t* from) {
  Floats x;
  for (int j = 0; j < kLanes; j++) x[j] = halfToFloat(from[j]);
  return x;
}

// Looks up bytes in 0..15 in a table of 16.
class NibbleTable {
 public:
  explicit NibbleTable(const uint8_t (&table)[16]) { std::memcpy(table_, table, 16); }
  MXATTN_METHOD Ints at(Ints nibbles) const {
    uint8_t bytes[4 * kLanes];
    std::memcpy(bytes, &nibbles, sizeof bytes);
    for (uint8_t& byte : bytes) byte = table_[byte];
    return load<Ints>(bytes);
  }

 private:
  uint8_t table_[16];
};

// Whether a comparison holds in any lane.
MXATTN_INLINE bool anyLane(Ints mask) {
  int32_t any = 0;
  for (int j = 0; j < kLanes; j++) any |= mask[j];
  return any != 0;
}

// 64 integers in 0..255 as bytes, in order, those above the limit as the limit.
template <int Count>
MXATTN_INLINE void storeBytes(uint8_t* to, const Ints (&v)[Count], uint8_t limit) {
  for (int i = 0; i < Count; i++) {
    Ints capped = v[i] > limit ? splat(int32_t{limit}) : v[i];
    store(to + i * kLanes, __builtin_convertvector(capped, Bytes));
  }
}

#include "cpu/block_scaled.h"
#include "cpu/peak.h"
#include "cpu/byte_peak.h"
#include "cpu/kernel.h"

void run(const Problem& problem, const Parallel& parallel, Scratch& scratch) {
  attendWith<BlockScaledEngine>(problem, parallel, scratch);
}

}  // namespace mxattn::cpu::portable
