// 64-bit Arm with the dot product instructions of ARMv8.2: 4 lanes; sdot multiplies 16 pairs of signed bytes and adds them
// up in fours.
#include <arm_neon.h>

#include "cpu/includes.h"

namespace mxattn::cpu::neon {

constexpr int kLanes = 4;
// 32 registers.
constexpr int kFloatRows = 6;
constexpr int kFloatPanels = 4;
constexpr int kIntegerRows = 6;
constexpr int kIntegerPanels = 4;

#include "cpu/vector.h"

// Both sides of a product are signed: codes of P are at most 60.
constexpr uint8_t kKeyOffset = 0;

// Keeps the compiler from knowing a vector's value.
template <typename V>
MXATTN_INLINE void opaque(V& x) {
  __asm__("" : "+w"(x));
}

// acc + a . b in every lane, both signed bytes.
MXATTN_INLINE Ints dot4(Ints acc, Ints a, Ints b) {
  return reinterpret_cast<Ints>(vdotq_s32(reinterpret_cast<int32x4_t>(acc), reinterpret_cast<int8x16_t>(a),
                                          reinterpret_cast<int8x16_t>(b)));
}

#include "cpu/wide_sums.h"

// Unsigned bytes, one for each lane.
MXATTN_INLINE Ints loadBytes(const uint8_t* from) {
  uint32_t four;
  std::memcpy(&four, from, 4);
  uint16x8_t wide = vmovl_u8(vcreate_u8(four));
  return reinterpret_cast<Ints>(vmovl_u16(vget_low_u16(wide)));
}

// kLanes numbers in IEEE binary16.
MXATTN_INLINE Floats loadNumbers(const uint16_t* from) {
  return reinterpret_cast<Floats>(vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from))));
}

// Looks up bytes in 0..15 in a table of 16.
class NibbleTable {
 public:
  explicit NibbleTable(const uint8_t (&table)[16]) : table_(vld1q_u8(table)) {}
  MXATTN_METHOD Ints at(Ints nibbles) const {
    return reinterpret_cast<Ints>(vqtbl1q_u8(table_, reinterpret_cast<uint8x16_t>(nibbles)));
  }

 private:
  uint8x16_t table_;
};

// Whether a comparison holds in any lane.
MXATTN_INLINE bool anyLane(Ints mask) { return vmaxvq_u32(reinterpret_cast<uint32x4_t>(mask)) != 0; }

// 64 integers in 0..255 as bytes, in order, those above the limit as the limit.
MXATTN_INLINE void storeBytes(uint8_t* to, const Ints (&v)[16], uint8_t limit) {
  for (int i = 0; i < 16; i += 4) {
    uint16x8_t low = vcombine_u16(vmovn_u32(reinterpret_cast<uint32x4_t>(v[i])),
                                  vmovn_u32(reinterpret_cast<uint32x4_t>(v[i + 1])));
    uint16x8_t high = vcombine_u16(vmovn_u32(reinterpret_cast<uint32x4_t>(v[i + 2])),
                                   vmovn_u32(reinterpret_cast<uint32x4_t>(v[i + 3])));
    uint8x16_t bytes = vcombine_u8(vmovn_u16(low), vmovn_u16(high));
    vst1q_u8(to + i * kLanes, vminq_u8(bytes, vdupq_n_u8(limit)));
  }
}

#include "cpu/block_scaled.h"
#include "cpu/half.h"
#include "cpu/peak.h"
#include "cpu/byte_peak.h"
#include "cpu/kernel.h"

void run(const Problem& problem, const Parallel& parallel, Scratch& scratch) {
  attendWith<BlockScaledEngine>(problem, parallel, scratch);
}

}  // namespace mxattn::cpu::neon
