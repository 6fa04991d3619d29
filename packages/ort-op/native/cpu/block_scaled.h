// Quantisation to MX blocks. A block of 32 elements shares a scale 2^e; an E2M3 element times 8 and an E2M1 element times
// 2 are integers of at most 60 and 12, so products of blocks are exact in int8. E4M3 elements stay floats.
//
// OCP Microscaling Formats (MX) v1.0; the scale rules are those of the recipes in @mxattn/core.

constexpr int kBlock = 32;
static_assert(kBlock == kTailTokens);
constexpr int kBlockVectors = kBlock / kLanes;
constexpr int kBlockBytes = kBlock * kLanes;  // one block for each of kLanes rows or channels

struct ElementFormat {
  // Added to the bits of the largest magnitude before its exponent is taken: 0 for the rule `floor`; for `ceil`
  // the value that carries into the exponent where the magnitude is above the format's largest at that exponent.
  int32_t scaleCarry;
  // 1.5 * 2^23 over the number of steps in [1, 2): adding it (times the element's power of two) rounds to a step.
  float roundingMagic;
  float largest;
  // Exponent of the largest element.
  int32_t maxExponent;
  // The least power of two at which steps still halve: below it elements are subnormal.
  float smallestPower;
  // Multiplies an element to an integer; 1 where it is none.
  float toInteger;
};

constexpr ElementFormat kE2m3Floor{0, 1.5f * 0x1p20f, 7.5f, 2, 1.f, 8.f};
constexpr ElementFormat kE2m3Ceil{0x0fffff, 1.5f * 0x1p20f, 7.5f, 2, 1.f, 8.f};  // 7.5 = 1.875 * 2^2
constexpr ElementFormat kE2m1Ceil{0x3fffff, 1.5f * 0x1p22f, 6.f, 2, 1.f, 2.f};   // 6 = 1.5 * 2^2
constexpr ElementFormat kE4m3Even2{0x200000, 1.5f * 0x1p20f, 448.f, 8, 0x1p-6f, 1.f};
constexpr ElementFormat kE4m3Ceil{0x1fffff, 1.5f * 0x1p20f, 448.f, 8, 0x1p-6f, 1.f};  // 448 = 1.75 * 2^8

// Biased E8M0 exponent of the scale of a block with this largest magnitude.
MXATTN_INLINE Ints scaleExponent(Floats largest, ElementFormat format) {
  Ints e = ((bits(largest) + format.scaleCarry) >> 23) - format.maxExponent;
  return e < 0 ? Ints{} : e;
}

// 2^e of a biased exponent in [0, 254]; e = -127 is a subnormal.
MXATTN_INLINE Floats scaleOf(Ints biased) {
  return fromBits(biased == 0 ? splat(0x00400000) : biased << 23);
}

MXATTN_INLINE Floats inverseScaleOf(Ints biased) { return fromBits((254 - biased) << 23); }

// Elements (already divided by their scale): rounded to nearest even, saturated.
MXATTN_INLINE Floats elements(Floats x, ElementFormat format) {
  Floats power = fromBits(bits(x) & 0x7f800000);
  Floats magic = maximum(power, splat(format.smallestPower)) * format.roundingMagic;
  Floats rounded = (x + magic) - magic;
  return maximum(minimum(rounded, splat(format.largest)), splat(-format.largest));
}

MXATTN_INLINE Ints elementIntegers(Floats x, ElementFormat format) {
  return toInts(elements(x, format) * format.toInteger);
}

// NaN for a block with a NaN or an infinity, else its scale.
MXATTN_INLINE Floats blockScale(Floats largest, Ints biased) {
  return bits(largest) >= 0x7f800000 ? splat(std::numeric_limits<float>::quiet_NaN()) : scaleOf(biased);
}

// The same over the integer factor.
MXATTN_INLINE Floats integerScale(Floats largest, Ints biased, ElementFormat format) {
  return blockScale(largest, biased) / format.toInteger;
}

// Larger magnitude, NaN winning over everything (its bits are the largest).
MXATTN_INLINE Floats largerMagnitude(Floats a, Floats b) {
  Ints x = bits(magnitude(a)), y = bits(magnitude(b));
  return fromBits(x > y ? x : y);
}

template <int Distance = kLanes / 2>
MXATTN_INLINE Floats largestMagnitudeOfLanes(Floats x) {
  x = largerMagnitude(x, exchange<Distance>(x, LaneSequence{}));
  if constexpr (Distance > 1) return largestMagnitudeOfLanes<Distance / 2>(x);
  return x;
}

// The largest magnitude of a block, in every lane.
MXATTN_INLINE Floats largestOfBlock(const float* block) {
  Floats largest{};
  for (int v = 0; v < kBlockVectors; v++) largest = largerMagnitude(largest, load<Floats>(block + v * kLanes));
  return largestMagnitudeOfLanes(largest);
}

// One row of `blocks` blocks: codes[32 * blocks], scales[blocks], and their biased exponents, -1 for a block of zeros.
MXATTN_INLINE void quantiseRow(const float* x, int64_t blocks, ElementFormat format, int8_t* codes, float* scales,
                               int32_t* exponents) {
  for (int64_t b = 0; b < blocks; b++) {
    const float* block = x + b * kBlock;
    Floats largest = largestOfBlock(block);
    Ints biased = scaleExponent(largest, format);
    scales[b] = integerScale(largest, biased, format)[0];
    exponents[b] = bits(largest)[0] == 0 ? -1 : biased[0];
    Floats inverse = inverseScaleOf(biased);
    for (int v = 0; v < kBlockVectors; v++) {
      Ints integers = elementIntegers(load<Floats>(block + v * kLanes) * inverse, format);
      store(codes + b * kBlock + v * kLanes, __builtin_convertvector(integers, Bytes));
    }
  }
}

template <int Distance, size_t... J>
MXATTN_INLINE Floats hadamardStep(Floats x, std::index_sequence<J...> lanes) {
  return x * Floats{((J & Distance) ? -1.f : 1.f)...} + exchange<Distance>(x, lanes);
}

// Of the first `size` lanes, or of all.
template <int Distance = 1>
MXATTN_INLINE Floats hadamardWithin(Floats x, int64_t size) {
  x = hadamardStep<Distance>(x, LaneSequence{});
  if constexpr (Distance * 2 < kLanes) {
    if (Distance * 2 < size) return hadamardWithin<Distance * 2>(x, size);
  }
  return x;
}

// Walsh-Hadamard transform in place, not normalised; size a power of two, at least 2. Whole vectors are read and written.
MXATTN_INLINE void hadamard(float* x, int64_t size) {
  for (int64_t i = 0; i < size; i += kLanes) store(x + i, hadamardWithin(load<Floats>(x + i), size));
  for (int64_t step = kLanes; step < size; step *= 2) {
    for (int64_t i = 0; i < size; i += kLanes) {
      if (i & step) continue;
      Floats a = load<Floats>(x + i), b = load<Floats>(x + i + step);
      store(x + i, a + b);
      store(x + i + step, a - b);
    }
  }
}

// The rotation of queries and keys needs a power of two; other head sizes do without it.
MXATTN_INLINE bool rotates(int64_t size) { return size > 1 && (size & (size - 1)) == 0; }

// Rotates a row in place. Its own inverse. Whole vectors are read and written.
MXATTN_INLINE void rotate(float* x, int64_t size) {
  auto norm = static_cast<float>(1 / std::sqrt(static_cast<double>(size)));
  hadamard(x, size);
  for (int64_t c = 0; c < size; c += kLanes) store(x + c, load<Floats>(x + c) * norm);
}

// A row times a factor, rotated where rows are, zeros up to a whole block.
MXATTN_INLINE void prepareRow(const float* from, int64_t size, float factor, float* to) {
  for (int64_t c = 0; c < size; c++) to[c] = from[c] * factor;
  for (int64_t c = size; c % kBlock != 0; c++) to[c] = 0;
  if (rotates(size)) rotate(to, size);
}

// Up to kLanes numbers, the rest zeros.
MXATTN_INLINE Floats loadFirst(const float* from, int64_t count) {
  if (count >= kLanes) return load<Floats>(from);
  Floats x{};
  for (int64_t j = 0; j < count; j++) x[j] = from[j];
  return x;
}
