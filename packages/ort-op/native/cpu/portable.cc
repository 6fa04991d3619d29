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

typedef int16_t Shorts __attribute__((vector_size(4 * kLanes)));

// acc + u . s in every lane, u unsigned bytes, s signed bytes, in 16-bit products of even and odd bytes: vectors of
// those are multiplied everywhere. Exact: |255 * 60 * 2| < 2^15.
MXATTN_INLINE Ints dot4(Ints acc, Ints u, Ints s) {
  Shorts a = reinterpret_cast<Shorts>(u), b = reinterpret_cast<Shorts>(s);
  Shorts pairs = (a & 0xff) * ((b << 8) >> 8) + ((a >> 8) & 0xff) * (b >> 8);
  Ints sums = reinterpret_cast<Ints>(pairs);
  return acc + ((sums << 16) >> 16) + (sums >> 16);
}

// Whether a comparison holds in any lane.
MXATTN_INLINE bool anyLane(Ints mask) {
  int32_t any = 0;
  for (int j = 0; j < kLanes; j++) any |= mask[j];
  return any != 0;
}

// The low bytes of 64 integers in 0..255, in order.
template <int Count>
MXATTN_INLINE void storeBytes(uint8_t* to, const Ints (&v)[Count]) {
  for (int i = 0; i < Count; i++) store(to + i * kLanes, __builtin_convertvector(v[i], Bytes));
}

#include "cpu/block_scaled.h"
#include "cpu/half.h"
#include "cpu/peak.h"
#include "cpu/kernel.h"

void run(const Problem& problem, const Parallel& parallel, Scratch& scratch) {
  attendWith<BlockScaledEngine>(problem, parallel, scratch);
}

}  // namespace mxattn::cpu::portable
