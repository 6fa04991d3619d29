// Plain C++ for any processor.
#include "cpu/includes.h"

namespace mxattn::cpu::portable {

constexpr int kLanes = 4;
constexpr int kFloatRows = 4;
constexpr int kFloatPanels = 2;
constexpr int kIntegerRows = 2;
constexpr int kIntegerPanels = 2;

#include "cpu/vector.h"

MXATTN_INLINE Ints dot4(Ints acc, Ints u, Ints s) {
  for (int shift = 0; shift < 32; shift += 8) acc += ((u >> shift) & 0xff) * ((s << (24 - shift)) >> 24);
  return acc;
}

#include "cpu/block_scaled.h"
#include "cpu/kernel.h"

}  // namespace mxattn::cpu::portable
