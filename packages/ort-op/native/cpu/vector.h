// Vectors of kLanes 32-bit elements, in the compiler's own vector types. Included by every build of the kernel
// after kLanes is defined; the same source then compiles to AVX-512, AVX2 or whatever the target offers.

#define MXATTN_METHOD inline __attribute__((always_inline))
#define MXATTN_INLINE static MXATTN_METHOD

typedef float Floats __attribute__((vector_size(4 * kLanes)));
typedef int32_t Ints __attribute__((vector_size(4 * kLanes)));
typedef int16_t Shorts __attribute__((vector_size(4 * kLanes)));
typedef int8_t Bytes __attribute__((vector_size(kLanes)));

using LaneSequence = std::make_index_sequence<kLanes>;

MXATTN_INLINE Floats splat(float x) { return x - Floats{}; }
MXATTN_INLINE Ints splat(int32_t x) { return x - Ints{}; }

template <typename V>
MXATTN_INLINE V load(const void* from) {
  V v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

template <typename V>
MXATTN_INLINE void store(void* to, V v) {
  std::memcpy(to, &v, sizeof v);
}

MXATTN_INLINE Floats loadNumbers(const float* from) { return load<Floats>(from); }

// A store of floats changes nothing but floats. The general one, of bytes, would make the compiler load every pointer and
// size anew behind it, which nearly doubled the time of the ends of products.
MXATTN_INLINE void store(float* to, Floats v) {
  typedef float Unaligned __attribute__((vector_size(4 * kLanes), aligned(4)));
  *reinterpret_cast<Unaligned*>(to) = v;
}

// Four bytes repeated in every lane.
MXATTN_INLINE Ints splatBytes(const void* from) {
  int32_t x;
  std::memcpy(&x, from, 4);
  return splat(x);
}

MXATTN_INLINE Ints bits(Floats x) { return reinterpret_cast<Ints>(x); }
MXATTN_INLINE Floats fromBits(Ints x) { return reinterpret_cast<Floats>(x); }
MXATTN_INLINE Floats toFloats(Ints x) { return __builtin_convertvector(x, Floats); }
// Towards zero.
MXATTN_INLINE Ints toInts(Floats x) { return __builtin_convertvector(x, Ints); }
MXATTN_INLINE Floats maximum(Floats a, Floats b) { return a > b ? a : b; }
MXATTN_INLINE Floats minimum(Floats a, Floats b) { return a < b ? a : b; }
MXATTN_INLINE Floats magnitude(Floats x) { return fromBits(bits(x) & 0x7fffffff); }

template <size_t... J>
MXATTN_INLINE Ints iota(std::index_sequence<J...>) {
  return Ints{static_cast<int32_t>(J)...};
}

// Lane j exchanged with lane j ^ Distance.
template <int Distance, size_t... J>
MXATTN_INLINE Floats exchange(Floats x, std::index_sequence<J...>) {
  return __builtin_shufflevector(x, x, static_cast<int>(J ^ Distance)...);
}

template <int Distance = kLanes / 2>
MXATTN_INLINE Floats maximumOfLanes(Floats x) {
  x = maximum(x, exchange<Distance>(x, LaneSequence{}));
  if constexpr (Distance > 1) return maximumOfLanes<Distance / 2>(x);
  return x;
}

template <int Distance = kLanes / 2>
MXATTN_INLINE Floats sumOfLanes(Floats x) {
  x += exchange<Distance>(x, LaneSequence{});
  if constexpr (Distance > 1) return sumOfLanes<Distance / 2>(x);
  return x;
}

// Below this a weight 2^x is 0. It would change no sum of fewer than 2^50 weights with one near 1 among them, and
// products with it would be subnormal numbers, which cost many times as much as others.
constexpr float kSmallestExponent = -80.f;

// Lane j of `a` where bit Distance of j is 0, else of `b`; with Swapped, of lane j ^ Distance.
template <int Distance, bool Swapped, size_t... J>
MXATTN_INLINE Floats interleave(Floats a, Floats b, std::index_sequence<J...>) {
  return __builtin_shufflevector(
      a, b, static_cast<int>((Swapped ? J ^ Distance : J) + ((J & Distance) ? kLanes : 0))...);
}

// Lane j of the result is the largest lane of v[j]: kLanes reductions for the price of a few, since vectors are halved
// and combined at every step.
template <int Distance = kLanes / 2>
MXATTN_INLINE Floats maximaOf(Floats* v) {
  for (int i = 0; i < Distance; i++) {
    v[i] = maximum(interleave<Distance, false>(v[i], v[i + Distance], LaneSequence{}),
                   interleave<Distance, true>(v[i], v[i + Distance], LaneSequence{}));
  }
  if constexpr (Distance > 1) return maximaOf<Distance / 2>(v);
  return v[0];
}

// 2^x to 1e-7 relative; 0 below kSmallestExponent.
MXATTN_INLINE Floats exp2(Floats x) {
  const float kRound = 12582912.f;  // 1.5 * 2^23: adding it rounds to an integer held in the low mantissa bits
  Floats clamped = maximum(x, splat(kSmallestExponent));
  Floats shifted = clamped + kRound;
  Floats f = clamped - (shifted - kRound);
  // Taylor series of 2^f on [-1/2, 1/2]: the first term left out is 5e-9.
  Floats p = splat(1.52527338e-5f);
  p = p * f + 1.54035304e-4f;
  p = p * f + 1.33335581e-3f;
  p = p * f + 9.61812911e-3f;
  p = p * f + 5.55041087e-2f;
  p = p * f + 2.40226507e-1f;
  p = p * f + 6.93147181e-1f;
  p = p * f + 1.f;
  Floats result = fromBits(bits(p) + (bits(shifted) << 23));
  return x < kSmallestExponent ? Floats{} : result;
}

// tanh to 1e-7 absolute.
MXATTN_INLINE Floats tanh(Floats x) {
  Floats e = exp2(minimum(x, splat(20.f)) * 2.88539008f);  // e^(2x)
  return 1.f - 2.f / (1.f + e);
}
