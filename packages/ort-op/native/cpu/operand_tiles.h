// Keys and values of a head as integers, in tiles of kTileKeys tokens, in the order in which the products read them.
//
// A tile holds, one after the other:
// - key codes, [panel of kLanes keys][block][4 channels at a time][key][channel], code + kKeyOffset;
// - key scales, float [panel][block][key];
// - where sums are narrow, weights of blocks, 2 x int16 [panel][block][key]: 2 to the power of how far the exponent of a
//   block is above the lowest of its key (there is no room for a shift beside the offset);
// - line scales, float [panel][key]: the scale of an aligned key;
// - value codes, [block of 32 tokens][group of kLanes channels][4 tokens at a time][channel][token];
// - value scales, float [block][group][channel];
// - what is known of the tile: TileFacts.

struct TileFacts {
  // Every key has one scale: line scales and weights count, else the scales of blocks.
  bool aligned;
  bool nan;
  // Of narrow sums: the largest norm of the codes of a key that are added up in one.
  float keyNorm;
};

class OperandTiles {
 public:
  OperandTiles(const Problem& problem, ElementFormat format) : format_(format) {
    headBlocks_ = ceilDivide(problem.headSize, kBlock);
    channelGroups_ = ceilDivide(problem.valueHeadSize, kLanes);
    panelBytes_ = headBlocks_ * kBlockBytes;
    int64_t perBlock = kTileVectors * headBlocks_ * kLanes * sizeof(float);
    scalesAt_ = kTileVectors * panelBytes_;
    weightsAt_ = scalesAt_ + perBlock;
    lineScalesAt_ = weightsAt_ + (kNarrowSums ? perBlock : 0);
    valuesAt_ = lineScalesAt_ + kTileKeys * sizeof(float);
    valueScalesAt_ = valuesAt_ + kTileBlocks * channelGroups_ * kBlockBytes;
    factsAt_ = valueScalesAt_ + kTileBlocks * channelGroups_ * kLanes * sizeof(float);
  }

  int64_t bytes() const { return factsAt_ + 64; }
  int64_t headBlocks() const { return headBlocks_; }
  int64_t channelGroups() const { return channelGroups_; }
  int64_t panelBytes() const { return panelBytes_; }
  ElementFormat format() const { return format_; }

  const uint8_t* keys(const uint8_t* tile, int64_t panel) const { return tile + panel * panelBytes_; }
  const float* keyScales(const uint8_t* tile, int64_t panel) const {
    return reinterpret_cast<const float*>(tile + scalesAt_) + panel * headBlocks_ * kLanes;
  }
  const int32_t* weights(const uint8_t* tile, int64_t panel) const {
    return reinterpret_cast<const int32_t*>(tile + weightsAt_) + panel * headBlocks_ * kLanes;
  }
  const float* lineScales(const uint8_t* tile, int64_t panel) const {
    return reinterpret_cast<const float*>(tile + lineScalesAt_) + panel * kLanes;
  }
  const int8_t* values(const uint8_t* tile, int64_t block, int64_t group) const {
    return reinterpret_cast<const int8_t*>(tile + valuesAt_) + (block * channelGroups_ + group) * kBlockBytes;
  }
  const float* valueScales(const uint8_t* tile, int64_t block, int64_t group) const {
    return reinterpret_cast<const float*>(tile + valueScalesAt_) + (block * channelGroups_ + group) * kLanes;
  }
  const TileFacts& facts(const uint8_t* tile) const { return *reinterpret_cast<const TileFacts*>(tile + factsAt_); }
  TileFacts& facts(uint8_t* tile) const { return *reinterpret_cast<TileFacts*>(tile + factsAt_); }

  // Puts a key into a tile: its codes, the scales of its blocks and their exponents, as of quantiseRow. Changes the codes.
  void putKey(uint8_t* tile, int64_t key, int8_t* codes, float* scales, const int32_t* exponents) const {
    TileFacts& known = facts(tile);
    int64_t panel = key / kLanes, lane = key % kLanes;
    RowExponents row = rowExponents(exponents, scales, headBlocks_);
    known.nan |= !row.numbers;
    float line = scales[0];
    if (kNarrowSums) {
      // 2^6: products of any head fit 32 bits with it, 1024 * 60 * 120 * 2^6 < 2^31.
      bool aligned = row.numbers && row.highest - row.lowest <= 6;
      known.aligned &= aligned;
      line = (scaleOf(splat(row.lowest)) / format_.toInteger)[0];
      auto weights = const_cast<int32_t*>(this->weights(tile, panel)) + lane;
      for (int64_t b = 0; b < headBlocks_; b++) {
        int32_t shift = !aligned || exponents[b] == kAnyExponent ? 0 : exponents[b] - row.lowest;
        weights[b * kLanes] = 0x00010001 << shift;
      }
      known.keyNorm = std::max(known.keyNorm, largestNorm(codes, headBlocks_));
    } else if (alignRow(codes, exponents, scales, headBlocks_, format_)) {
      line = scales[0];
    } else {
      known.aligned = false;
    }
    const_cast<float*>(lineScales(tile, panel))[lane] = line;
    uint8_t* to = tile + panel * panelBytes_ + lane * 4;
    for (int64_t g = 0; g < headBlocks_ * kBlock / 4; g++) {
      uint32_t four;
      std::memcpy(&four, codes + g * 4, 4);
      four = withOffset(four);
      std::memcpy(to + g * kLanes * 4, &four, 4);
    }
    auto scaleTo = const_cast<float*>(keyScales(tile, panel)) + lane;
    for (int64_t b = 0; b < headBlocks_; b++) scaleTo[b * kLanes] = scales[b];
  }

  // Where there are fewer keys than a tile holds, the others are zeros: they are masked, but their sums must be sums.
  void startKeys(uint8_t* tile, int64_t count) const {
    facts(tile) = TileFacts{true, false, 0.f};
    if (count < kTileKeys) std::memset(tile, 0, valuesAt_);
  }

  // Quantises kLanes channels of a block of 32 tokens.
  void putValues(uint8_t* tile, int64_t block, int64_t group, const Floats (&x)[kBlock]) const {
    Floats largest{};
    for (int t = 0; t < kBlock; t++) largest = largerMagnitude(largest, x[t]);
    Ints biased = scaleExponent(largest, format_);
    Floats inverse = inverseScaleOf(biased);
    store(const_cast<float*>(valueScales(tile, block, group)), integerScale(largest, biased, format_));
    auto to = const_cast<int8_t*>(values(tile, block, group));
    for (int t = 0; t < kBlock; t += 4) {
      Ints four{};
      for (int i = 0; i < 4; i++) {
        four |= (elementIntegers(x[t + i] * inverse, format_) & 0xff) << (8 * i);
      }
      store(to + t * kLanes, four);
    }
  }

  // Narrow sums add up, of each block, the first two of every four codes, and the last two. By Cauchy and Schwarz the sum
  // of products is at most the product of the norms. 0 where sums are not narrow.
  static float largestNorm(const int8_t* codes, int64_t blocks) {
    if constexpr (!kNarrowSums) return 0;
    Ints largest{};
    for (int64_t c = 0; c < blocks * kBlock; c += 4 * kLanes) {
      Ints four{};
      std::memcpy(&four, codes + c, std::min<int64_t>(sizeof four, blocks * kBlock - c));
      Ints positive = magnitudeOfBytes(four);
      PairSums squares = pairSums(positive, positive);
      largest = squares.first > largest ? squares.first : largest;
      largest = squares.second > largest ? squares.second : largest;
    }
    return std::sqrt(static_cast<float>(largestOfLanes(largest)[0]));
  }

  // Of every block of products of bytes, u unsigned, the sum of the first two of every four, and of the last two: in all
  // lanes of the block.
  struct PairSums {
    Ints first;
    Ints second;
  };
  MXATTN_INLINE PairSums pairSums(Ints u, Ints s) {
    Sums pairs = multiplyAdd(Sums{}, u, s);
    return {sumOfBlock(widen(pairs, splat(0x00000001))), sumOfBlock(widen(pairs, splat(0x00010000)))};
  }

 private:
  // Adds kKeyOffset to four codes. 64 is only added to what has seven bits.
  MXATTN_INLINE uint32_t withOffset(uint32_t four) {
    if (kKeyOffset == 64) return (four & 0x7f7f7f7f) ^ 0x40404040;
    static_assert(kKeyOffset == 64 || kKeyOffset == 128 || kKeyOffset == 0);
    return kKeyOffset == 128 ? four ^ 0x80808080 : four;
  }

  // Four codes a lane, none of them -128.
  MXATTN_INLINE Ints magnitudeOfBytes(Ints codes) {
    typedef int8_t AllBytes __attribute__((vector_size(4 * kLanes)));
    AllBytes x = reinterpret_cast<AllBytes>(codes);
    return reinterpret_cast<Ints>(x < 0 ? -x : x);
  }

  // A block of 32 codes is eight lanes.
  template <int Distance = kBlock / 8>
  MXATTN_INLINE Ints sumOfBlock(Ints x) {
    x += bits(exchange<Distance>(fromBits(x), LaneSequence{}));
    if constexpr (Distance > 1) return sumOfBlock<Distance / 2>(x);
    return x;
  }

  template <int Distance = kLanes / 2>
  MXATTN_INLINE Ints largestOfLanes(Ints x) {
    Ints y = bits(exchange<Distance>(fromBits(x), LaneSequence{}));
    x = x > y ? x : y;
    if constexpr (Distance > 1) return largestOfLanes<Distance / 2>(x);
    return x;
  }

  ElementFormat format_;
  int64_t headBlocks_;
  int64_t channelGroups_;
  int64_t panelBytes_;
  int64_t scalesAt_;
  int64_t weightsAt_;
  int64_t lineScalesAt_;
  int64_t valuesAt_;
  int64_t valueScalesAt_;
  int64_t factsAt_;
};
