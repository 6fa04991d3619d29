// Tiles of a quantised cache: the codes of OperandTiles in their order, E2M1 in 4 bits and E2M3 in 8, and a byte (E8M0)
// for the scale of every block: 4.25 and 8.25 bits an element. They are unpacked to an operand tile where they are used.
//
// A tile holds, one after the other: key codes, key exponents [panel][block][key], value codes, value exponents [block of
// 32 tokens][group][channel], CacheFacts. With 4 bits, a byte holds an element of one group of 4 and of the next.

struct CacheFacts {
  // See TileFacts.
  float keyNorm;
  bool nan;
};

constexpr int32_t kNaNExponent = 255;

class CacheTiles {
 public:
  explicit CacheTiles(const OperandTiles& operands) : operands_(operands), format_(operands.format()) {
    bool narrow = isE2m1();
    int64_t keyCodes = kTileVectors * operands.panelBytes();
    int64_t valueCodes = kTileBlocks * operands.channelGroups() * kBlockBytes;
    keyExponentsAt_ = narrow ? keyCodes / 2 : keyCodes;
    valuesAt_ = keyExponentsAt_ + kTileVectors * operands.headBlocks() * kLanes;
    valueExponentsAt_ = valuesAt_ + (narrow ? valueCodes / 2 : valueCodes);
    factsAt_ = valueExponentsAt_ + kTileBlocks * operands.channelGroups() * kLanes;
    factsAt_ = (factsAt_ + 15) / 16 * 16;
  }

  int64_t bytes() const { return factsAt_ + sizeof(CacheFacts); }

  void startKeys(uint8_t* tile) const { facts(tile) = CacheFacts{0.f, false}; }

  // Puts a key into a tile: codes, scales and exponents as of quantiseRow.
  void putKey(uint8_t* tile, int64_t key, const int8_t* codes, const float* scales, const int32_t* exponents) const {
    CacheFacts& known = facts(tile);
    int64_t panel = key / kLanes, lane = key % kLanes, blocks = operands_.headBlocks();
    for (int64_t c = 0; c < blocks * kBlock; c++) {
      put(tile + panel * codeBytes(operands_.panelBytes()), c / 4 * kLanes * 4 + lane * 4 + c % 4, codes[c]);
    }
    uint8_t* to = tile + keyExponentsAt_ + panel * blocks * kLanes + lane;
    for (int64_t b = 0; b < blocks; b++) {
      bool nan = std::isnan(scales[b]);
      known.nan |= nan;
      to[b * kLanes] = static_cast<uint8_t>(nan ? kNaNExponent : std::max(exponents[b], 0));
    }
    known.keyNorm = std::max(known.keyNorm, OperandTiles::largestNorm(codes, blocks));
  }

  // Quantises kLanes channels of a block of 32 tokens.
  void putValues(uint8_t* tile, int64_t block, int64_t group, const Floats (&x)[kBlock]) const {
    Floats largest{};
    for (int t = 0; t < kBlock; t++) largest = largerMagnitude(largest, x[t]);
    Ints biased = scaleExponent(largest, format_);
    Floats inverse = inverseScaleOf(biased);
    Ints exponents = bits(largest) >= 0x7f800000 ? splat(kNaNExponent) : biased;
    int64_t at = block * operands_.channelGroups() + group;
    store(tile + valueExponentsAt_ + at * kLanes, __builtin_convertvector(exponents, Bytes));
    uint8_t* to = tile + valuesAt_ + at * codeBytes(kBlockBytes);
    for (int t = 0; t < kBlock; t++) {
      Ints codes = elementIntegers(x[t] * inverse, format_);
      for (int j = 0; j < kLanes; j++) put(to, t / 4 * kLanes * 4 + j * 4 + t % 4, static_cast<int8_t>(codes[j]));
    }
  }

  // To an operand tile, in which every block has a scale of its own.
  void unpack(const uint8_t* tile, uint8_t* to) const {
    const CacheFacts& known = facts(tile);
    operands_.facts(to) = TileFacts{false, known.nan, known.keyNorm};
    unpackCodes<kKeyOffset>(tile, kTileVectors * operands_.panelBytes(), const_cast<uint8_t*>(operands_.keys(to, 0)));
    unpackScales(tile + keyExponentsAt_, kTileVectors * operands_.headBlocks(),
                 const_cast<float*>(operands_.keyScales(to, 0)));
    unpackCodes<0>(tile + valuesAt_, kTileBlocks * operands_.channelGroups() * kBlockBytes,
                   reinterpret_cast<uint8_t*>(const_cast<int8_t*>(operands_.values(to, 0, 0))));
    unpackScales(tile + valueExponentsAt_, kTileBlocks * operands_.channelGroups(),
                 const_cast<float*>(operands_.valueScales(to, 0, 0)));
  }

  // A key as floats.
  void readKey(const uint8_t* tile, int64_t key, float* out) const {
    int64_t panel = key / kLanes, lane = key % kLanes, blocks = operands_.headBlocks();
    const uint8_t* codes = tile + panel * codeBytes(operands_.panelBytes());
    const uint8_t* exponents = tile + keyExponentsAt_ + panel * blocks * kLanes + lane;
    for (int64_t c = 0; c < blocks * kBlock; c++) {
      out[c] = get(codes, c / 4 * kLanes * 4 + lane * 4 + c % 4) * scaleAt(exponents + c / kBlock * kLanes);
    }
  }

  float readValue(const uint8_t* tile, int64_t token, int64_t channel) const {
    int64_t lane = channel % kLanes, row = token % kBlock;
    int64_t at = token / kBlock * operands_.channelGroups() + channel / kLanes;
    return get(tile + valuesAt_ + at * codeBytes(kBlockBytes), row / 4 * kLanes * 4 + lane * 4 + row % 4) *
           scaleAt(tile + valueExponentsAt_ + at * kLanes + lane);
  }

 private:
  // E2M1 times 2, by code.
  static constexpr int8_t kE2m1Integers[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

  bool isE2m1() const { return format_.toInteger == 2.f; }
  int64_t codeBytes(int64_t codes) const { return isE2m1() ? codes / 2 : codes; }

  CacheFacts& facts(uint8_t* tile) const { return *reinterpret_cast<CacheFacts*>(tile + factsAt_); }
  const CacheFacts& facts(const uint8_t* tile) const { return *reinterpret_cast<const CacheFacts*>(tile + factsAt_); }

  // Element `at` of operand order. Two steps, of kLanes * 4 elements each, share the bytes of one.
  void put(uint8_t* codes, int64_t at, int8_t integer) const {
    constexpr int64_t kStep = kLanes * 4;
    if (!isE2m1()) {
      codes[at] = static_cast<uint8_t>(integer);
      return;
    }
    int magnitude = std::abs(integer);
    int code = magnitude <= 4 ? magnitude : magnitude == 6 ? 5 : magnitude == 8 ? 6 : 7;
    if (integer < 0) code |= 8;
    uint8_t& byte = codes[at / (2 * kStep) * kStep + at % kStep];
    byte = static_cast<uint8_t>(at / kStep % 2 ? (byte & 0x0f) | code << 4 : (byte & 0xf0) | code);
  }

  int32_t get(const uint8_t* codes, int64_t at) const {
    constexpr int64_t kStep = kLanes * 4;
    if (!isE2m1()) return static_cast<int8_t>(codes[at]);
    uint8_t byte = codes[at / (2 * kStep) * kStep + at % kStep];
    return kE2m1Integers[at / kStep % 2 ? byte >> 4 : byte & 0x0f];
  }

  float scaleAt(const uint8_t* exponent) const {
    return *exponent == kNaNExponent ? kNaN : (scaleOf(splat(int32_t{*exponent})) / format_.toInteger)[0];
  }

  // `count` codes in operand order, each plus Offset.
  template <int Offset>
  void unpackCodes(const uint8_t* from, int64_t count, uint8_t* to) const {
    constexpr int64_t kStep = kLanes * 4;
    // The next tile of the head mostly comes right behind this one. Left to itself, the processor stops prefetching at
    // every page, of which a tile is two.
    int64_t ahead = bytes();
    if (!isE2m1()) {
      for (int64_t i = 0; i < count; i += kStep) {
        __builtin_prefetch(from + i + ahead);
        for (int64_t j = i; j < i + kStep; j++) to[j] = static_cast<uint8_t>(from[j] + Offset);
      }
      return;
    }
    uint8_t integers[16];
    for (int i = 0; i < 16; i++) integers[i] = static_cast<uint8_t>(kE2m1Integers[i] + Offset);
    NibbleTable table(integers);
    for (int64_t i = 0; i < count; i += 2 * kStep, from += kStep) {
      __builtin_prefetch(from + ahead);
      Ints codes = load<Ints>(from);
      store(to + i, table.at(codes & 0x0f0f0f0f));
      store(to + i + kStep, table.at((codes >> 4) & 0x0f0f0f0f));
    }
  }

  void unpackScales(const uint8_t* exponents, int64_t vectors, float* to) const {
    float factor = 1.f / format_.toInteger;
    int64_t ahead = bytes();
    for (int64_t v = 0; v < vectors; v++) {
      __builtin_prefetch(exponents + v * kLanes + ahead);
      Ints biased = loadBytes(exponents + v * kLanes);
      Floats scale = scaleOf(biased) * factor;
      store(to + v * kLanes, biased == kNaNExponent ? splat(kNaN) : scale);
    }
  }

  const OperandTiles& operands_;
  ElementFormat format_;
  int64_t keyExponentsAt_;
  int64_t valuesAt_;
  int64_t valueExponentsAt_;
  int64_t factsAt_;
};
