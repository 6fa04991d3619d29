// Tiles of a cache of MX blocks: codes of E2M1, E2M3 or E4M3 elements in 4, 6 or 8 bits, and a byte (E8M0) for the scale
// of every block: 4.25, 6.25 and 8.25 bits an element. Where they are used, they are unpacked to an operand tile for integer
// products, or to floats.
//
// A tile holds, one after the other: key codes, key exponents [panel][block][key], value codes, value exponents [block of
// 32 tokens][group][channel], CacheFacts. Codes stand in the order of OperandTiles, in steps of a vector, of which four
// share the bytes of two or three:
// - 4 bits: a byte holds an element of the first and of the second step; the next one, of the third and fourth;
// - 6 bits: the same of the four low bits, then a byte for the two high bits of all four.

struct CacheFacts {
  // See TileFacts.
  float keyNorm;
  bool nan;
};

constexpr int32_t kNaNExponent = 255;
// Bytes of a step: one vector, four elements of every key or channel.
constexpr int64_t kStepBytes = 4 * kLanes;
constexpr int kSteps = kBlock / 4;  // of a block
typedef int8_t StepBytes __attribute__((vector_size(kStepBytes)));

class CacheTiles {
 public:
  CacheTiles(const Problem& problem, CacheFormat format)
      : headSize_(problem.headSize),
        headBlocks_(ceilDivide(problem.headSize, kBlock)),
        channelGroups_(ceilDivide(problem.valueHeadSize, kLanes)),
        format_(format),
        packedSteps_(format == CacheFormat::kMxfp4 ? 2 : format == CacheFormat::kMxfp6 ? 3 : 4),
        blockBytes_(kSteps / 4 * packedSteps_ * kStepBytes) {
    keyExponentsAt_ = kTileVectors * headBlocks_ * blockBytes_;
    valuesAt_ = keyExponentsAt_ + kTileVectors * headBlocks_ * kLanes;
    valueExponentsAt_ = valuesAt_ + kTileBlocks * channelGroups_ * blockBytes_;
    factsAt_ = valueExponentsAt_ + kTileBlocks * channelGroups_ * kLanes;
    factsAt_ = (factsAt_ + 15) / 16 * 16;
  }

  int64_t bytes() const { return factsAt_ + sizeof(CacheFacts); }

  void startKeys(uint8_t* tile) const { facts(tile) = CacheFacts{0.f, false}; }

  // Quantises a key, a row of prepareRow, into a tile.
  void putKey(uint8_t* tile, int64_t key, const float* x) const {
    CacheFacts& known = facts(tile);
    int64_t panel = key / kLanes, lane = key % kLanes;
    ElementFormat elementFormat = keyFormat();
    int8_t integers[kLargestHeadSize];
    for (int64_t b = 0; b < headBlocks_; b++) {
      Floats largest = largestOfBlock(x + b * kBlock);
      Ints biased = scaleExponent(largest, elementFormat);
      Floats inverse = inverseScaleOf(biased);
      uint32_t steps[kSteps];
      for (int v = 0; v < kBlockVectors; v++) {
        Floats rounded = elements(load<Floats>(x + b * kBlock + v * kLanes) * inverse, elementFormat);
        store(reinterpret_cast<uint8_t*>(steps) + v * kLanes, __builtin_convertvector(codesOf(rounded), Bytes));
        Ints whole = toInts(rounded * elementFormat.toInteger);
        store(integers + b * kBlock + v * kLanes, __builtin_convertvector(whole, Bytes));
      }
      uint8_t* to = tile + (panel * headBlocks_ + b) * blockBytes_ + lane * 4;
      for (int quad = 0; quad < kSteps / 4; quad++) {
        uint32_t packed[4];
        pack(steps + quad * 4, packed);
        for (int i = 0; i < packedSteps_; i++) {
          std::memcpy(to + (quad * packedSteps_ + i) * kStepBytes, packed + i, 4);
        }
      }
      bool nan = bits(largest)[0] >= 0x7f800000;
      known.nan |= nan;
      tile[keyExponentsAt_ + (panel * headBlocks_ + b) * kLanes + lane] =
          static_cast<uint8_t>(nan ? kNaNExponent : biased[0]);
    }
    known.keyNorm = std::max(known.keyNorm, OperandTiles::largestNorm(integers, headBlocks_));
  }

  // Quantises kLanes channels of a block of 32 tokens.
  void putValues(uint8_t* tile, int64_t block, int64_t group, const Floats (&x)[kBlock]) const {
    ElementFormat elementFormat = valueFormat();
    Floats largest{};
    for (int t = 0; t < kBlock; t++) largest = largerMagnitude(largest, x[t]);
    Ints biased = scaleExponent(largest, elementFormat);
    Floats inverse = inverseScaleOf(biased);
    Ints exponents = bits(largest) >= 0x7f800000 ? splat(kNaNExponent) : biased;
    int64_t at = block * channelGroups_ + group;
    store(tile + valueExponentsAt_ + at * kLanes, __builtin_convertvector(exponents, Bytes));
    uint8_t* to = tile + valuesAt_ + at * blockBytes_;
    for (int quad = 0; quad < kSteps / 4; quad++) {
      Ints steps[4] = {}, packed[4];
      for (int t = 0; t < 16; t++) {
        steps[t / 4] |= codesOf(elements(x[quad * 16 + t] * inverse, elementFormat)) << (8 * (t % 4));
      }
      pack(steps, packed);
      for (int i = 0; i < packedSteps_; i++) store(to + (quad * packedSteps_ + i) * kStepBytes, packed[i]);
    }
  }

  // To an operand tile, in which every block has a scale of its own. E2M1 and E2M3 only.
  void unpack(const uint8_t* tile, const OperandTiles& operands, uint8_t* to) const {
    const CacheFacts& known = facts(tile);
    operands.facts(to) = TileFacts{false, known.nan, known.keyNorm};
    float factor = 1.f / keyFormat().toInteger;
    withFormat([&](auto format) {
      unpackCodes<format.value, kKeyOffset>(tile, kTileVectors * headBlocks_,
                                            const_cast<uint8_t*>(operands.keys(to, 0)));
      unpackCodes<format.value, 0>(tile + valuesAt_, kTileBlocks * channelGroups_,
                                   reinterpret_cast<uint8_t*>(const_cast<int8_t*>(operands.values(to, 0, 0))));
    });
    unpackScales(tile + keyExponentsAt_, kTileVectors * headBlocks_, factor,
                 const_cast<float*>(operands.keyScales(to, 0)));
    unpackScales(tile + valueExponentsAt_, kTileBlocks * channelGroups_, factor,
                 const_cast<float*>(operands.valueScales(to, 0, 0)));
  }

  // Keys, still rotated, as floats [panel of kLanes keys][channel][key].
  void readKeys(const uint8_t* tile, float* to) const {
    withFormat([&](auto format) {
      for (int64_t panel = 0; panel < kTileVectors; panel++) {
        for (int64_t b = 0; b < headBlocks_; b++) {
          int64_t at = panel * headBlocks_ + b, channels = std::min<int64_t>(kBlock, headSize_ - b * kBlock);
          readBlock<format.value>(tile + at * blockBytes_, tile + keyExponentsAt_ + at * kLanes, channels,
                                  to + (panel * headSize_ + b * kBlock) * kLanes);
        }
      }
    });
  }

  // Values as floats [group of kLanes channels][token][channel].
  void readValues(const uint8_t* tile, float* to) const {
    withFormat([&](auto format) {
      for (int64_t group = 0; group < channelGroups_; group++) {
        for (int64_t b = 0; b < kTileBlocks; b++) {
          int64_t at = b * channelGroups_ + group;
          readBlock<format.value>(tile + valuesAt_ + at * blockBytes_, tile + valueExponentsAt_ + at * kLanes, kBlock,
                                  to + (group * kTileKeys + b * kBlock) * kLanes);
        }
      }
    });
  }

 private:
  // E2M1 times 2, by code.
  static constexpr int8_t kE2m1Integers[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

  ElementFormat keyFormat() const {
    return format_ == CacheFormat::kMxfp4 ? kE2m1Ceil : format_ == CacheFormat::kMxfp6 ? kE2m3Floor : kE4m3Even2;
  }
  ElementFormat valueFormat() const { return format_ == CacheFormat::kMxfp8 ? kE4m3Ceil : keyFormat(); }

  template <typename Task>
  void withFormat(Task&& task) const {
    if (format_ == CacheFormat::kMxfp4) {
      task(std::integral_constant<CacheFormat, CacheFormat::kMxfp4>{});
    } else if (format_ == CacheFormat::kMxfp6) {
      task(std::integral_constant<CacheFormat, CacheFormat::kMxfp6>{});
    } else {
      task(std::integral_constant<CacheFormat, CacheFormat::kMxfp8>{});
    }
  }

  CacheFacts& facts(uint8_t* tile) const { return *reinterpret_cast<CacheFacts*>(tile + factsAt_); }
  const CacheFacts& facts(const uint8_t* tile) const { return *reinterpret_cast<const CacheFacts*>(tile + factsAt_); }

  // Codes of rounded elements: sign above exponent and mantissa.
  Ints codesOf(Floats x) const {
    if (format_ == CacheFormat::kMxfp8) return e4m3Codes(x);
    if (format_ == CacheFormat::kMxfp4) {
      Ints m = toInts(magnitude(x) * 2.f);
      return (m > 4 ? (m >> 2) + 4 : m) | ((bits(x) >> 28) & 8);
    }
    Ints m = toInts(magnitude(x) * 8.f);
    m = m >= 32 ? (m >> 2) + 16 : m >= 16 ? (m >> 1) + 8 : m;
    return m | ((bits(x) >> 26) & 32);
  }

  // Four steps to packedSteps_.
  template <typename Step>
  void pack(const Step* codes, Step (&packed)[4]) const {
    if (format_ == CacheFormat::kMxfp8) {
      for (int i = 0; i < 4; i++) packed[i] = codes[i];
      return;
    }
    packed[0] = (codes[0] & 0x0f0f0f0f) | (codes[1] & 0x0f0f0f0f) << 4;
    packed[1] = (codes[2] & 0x0f0f0f0f) | (codes[3] & 0x0f0f0f0f) << 4;
    packed[2] = Step{};
    for (int i = 0; i < 4; i++) packed[2] |= (codes[i] & 0x30303030) >> 4 << (2 * i);
    packed[3] = Step{};
  }

  // And back; where they are integers, as those.
  template <CacheFormat Format>
  static void unpackSteps(const uint8_t* from, const NibbleTable& table, Ints (&steps)[4]) {
    if constexpr (Format == CacheFormat::kMxfp8) {
      for (int i = 0; i < 4; i++) steps[i] = load<Ints>(from + i * kStepBytes);
      return;
    }
    for (int i = 0; i < 2; i++) {
      Ints pair = load<Ints>(from + i * kStepBytes);
      steps[2 * i] = pair & 0x0f0f0f0f;
      steps[2 * i + 1] = (pair >> 4) & 0x0f0f0f0f;
    }
    if constexpr (Format == CacheFormat::kMxfp4) {
      for (int i = 0; i < 4; i++) steps[i] = table.at(steps[i]);
      return;
    }
    Ints high = load<Ints>(from + 2 * kStepBytes);
    for (int i = 0; i < 4; i++) {
      // Below 16 the integer of a magnitude is its code.
      auto large = reinterpret_cast<StepBytes>((high >> (2 * i)) & 0x01010101) != 0;
      auto negative = reinterpret_cast<StepBytes>((high >> (2 * i)) & 0x02020202) != 0;
      auto integers = large ? reinterpret_cast<StepBytes>(table.at(steps[i])) : reinterpret_cast<StepBytes>(steps[i]);
      steps[i] = reinterpret_cast<Ints>((integers ^ negative) - negative);
    }
  }

  template <CacheFormat Format>
  static NibbleTable integerTable() {
    uint8_t integers[16];
    for (int i = 0; i < 16; i++) {
      // E2M3: times 8, by the four low bits of a code whose fifth is 1.
      int e2m3 = i < 8 ? 16 + 2 * i : 4 * i;
      integers[i] = static_cast<uint8_t>(Format == CacheFormat::kMxfp4 ? kE2m1Integers[i] : e2m3);
    }
    return NibbleTable(integers);
  }

  // `blocks` blocks of codes in operand order, each plus Offset.
  template <CacheFormat Format, int Offset>
  void unpackCodes(const uint8_t* from, int64_t blocks, uint8_t* to) const {
    NibbleTable table = integerTable<Format>();
    // The next tile of the head mostly comes right behind this one. Left to itself, the processor stops prefetching at
    // every page, of which a tile is two.
    int64_t ahead = bytes(), packedBytes = packedSteps_ * kStepBytes;
    for (int64_t quad = 0; quad < blocks * kSteps / 4; quad++, from += packedBytes, to += 4 * kStepBytes) {
      for (int64_t line = 0; line < packedBytes; line += 64) __builtin_prefetch(from + ahead + line);
      Ints steps[4];
      unpackSteps<Format>(from, table, steps);
      for (int i = 0; i < 4; i++) {
        auto integers = reinterpret_cast<StepBytes>(steps[i]) + static_cast<int8_t>(Offset);
        store(to + i * kStepBytes, integers);
      }
    }
  }

  static Floats scalesOf(const uint8_t* exponents, float factor) {
    Ints biased = loadBytes(exponents);
    return biased == kNaNExponent ? splat(kNaN) : scaleOf(biased) * factor;
  }

  void unpackScales(const uint8_t* exponents, int64_t vectors, float factor, float* to) const {
    int64_t ahead = bytes();
    for (int64_t v = 0; v < vectors; v++) {
      __builtin_prefetch(exponents + v * kLanes + ahead);
      store(to + v * kLanes, scalesOf(exponents + v * kLanes, factor));
    }
  }

  // A block's first `count` elements of kLanes keys or channels as floats [element][kLanes].
  template <CacheFormat Format>
  void readBlock(const uint8_t* from, const uint8_t* exponents, int64_t count, float* to) const {
    NibbleTable table = integerTable<Format>();
    Floats scale = scalesOf(exponents, 1.f / keyFormat().toInteger);
    for (int64_t quad = 0; quad * 16 < count; quad++) {
      Ints steps[4];
      unpackSteps<Format>(from + quad * packedSteps_ * kStepBytes, table, steps);
      int64_t last = std::min<int64_t>(16, count - quad * 16);
      for (int64_t i = 0; i < last; i++) {
        Ints step = steps[i / 4];
        int shift = 8 * static_cast<int>(i % 4);
        Floats x;
        if constexpr (Format == CacheFormat::kMxfp8) {
          x = e4m3Values((step >> shift) & 0xff);
        } else {
          x = toFloats((step << (24 - shift)) >> 24);
        }
        store(to + (quad * 16 + i) * kLanes, x * scale);
      }
    }
  }

  int64_t headSize_;
  int64_t headBlocks_;
  int64_t channelGroups_;
  CacheFormat format_;
  int packedSteps_;
  int64_t blockBytes_;
  int64_t keyExponentsAt_;
  int64_t valuesAt_;
  int64_t valueExponentsAt_;
  int64_t factsAt_;
};
