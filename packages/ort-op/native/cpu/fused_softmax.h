// Fused-Softmax Attention (arXiv 2611.09225) on MX blocks, in int8.
//
// Query and key are rotated (Hadamard) and quantised along the head, value along the tokens. Each product of two
// 32-element blocks is exact in int32 and enters a float with the product of the two scales; sums of a few such
// terms fit 24 bits, so scores equal those of exact arithmetic on the quantised operands.
//
// Softmax per row: the reference is the maximum of the first tile with a visible key, then frozen. P = 2^(score -
// reference) is Schraudolph's approximation (the bits of the float are an affine function of the exponent),
// rounded to bf16, then quantised to E2M3 in blocks of 32 keys. A score more than kRollback above the reference
// raises it to the tile's maximum and rescales what was accumulated. The sum is that of the quantised P.

class BlockScaledEngine {
 public:
  struct Unit {
    int8_t* query;         // [kRowBlock][32 * blocks]
    float* queryScale;     // [kRowBlock][blocks]
    int32_t* queryOffset;  // [kRowBlock][blocks]: takes back what was added to every key code
    uint8_t* probability;    // [kRowBlock][kTileKeys], E2M3 times 8
    float* probabilityScale;  // [kRowBlock][blocks of the tile]
    bool nan;                 // some query is not a number
  };

  BlockScaledEngine(const Problem& problem, Arena& arena) : problem_(problem) {
    bool four = problem.precision == Precision::kMxfp4;
    operand_ = four ? kE2m1Ceil : kE2m3Floor;
    probability_ = four ? kE2m3Ceil : kE2m3Floor;
    headBlocks_ = ceilDivide(problem.headSize, kBlock);
    // The rotation needs a power of two (and here a whole vector); other head sizes do without it.
    rotated_ = (problem.headSize & (problem.headSize - 1)) == 0 && problem.headSize >= kLanes;
    tiles_ = ceilDivide(problem.keyLength, kTileKeys);
    channelGroups_ = ceilDivide(problem.valueHeadSize, kLanes);
    int64_t heads = problem.batch * problem.kvHeads;
    keyPanelBytes_ = headBlocks_ * kBlockBytes;
    keys_ = arena.take<uint8_t>(heads * tiles_ * kTileVectors * keyPanelBytes_);
    keyScales_ = arena.take<float>(heads * tiles_ * kTileVectors * headBlocks_ * kLanes);
    values_ = arena.take<int8_t>(heads * tiles_ * kTileBlocks * channelGroups_ * kBlockBytes);
    valueScales_ = arena.take<float>(heads * tiles_ * kTileBlocks * channelGroups_ * kLanes);
    keyNaN_ = arena.take<uint8_t>(heads * tiles_);
  }

  void pack(const Parallel& parallel) {
    parallel.each(problem_.batch * problem_.kvHeads * tiles_, [&](size_t index) {
      int64_t head = index / tiles_, tile = index % tiles_;
      packKeys(head, tile);
      packValues(head, tile);
    });
  }

  Unit begin(const Rows& rows, Arena& arena) const {
    int64_t padded = headBlocks_ * kBlock;
    Unit unit{};
    unit.query = arena.take<int8_t>(kRowBlock * padded);
    unit.queryScale = arena.take<float>(kRowBlock * headBlocks_);
    unit.queryOffset = arena.take<int32_t>(kRowBlock * headBlocks_);
    unit.probability = arena.take<uint8_t>(kRowBlock * kTileKeys);
    // A group of rows writes a whole vector of scales.
    unit.probabilityScale = arena.take<float>(kRowBlock * kTileBlocks + kLanes);
    if (rows.count == 0) return unit;
    int64_t group = problem_.heads / problem_.kvHeads;
    int64_t firstRow = (rows.batch * problem_.kvHeads + rows.kvHead) * group * problem_.queryLength + rows.first;
    auto fold = static_cast<float>(problem_.scale * 1.4426950408889634);  // scale * log2(e)
    for (int row = 0; row < rows.count; row++) {
      int8_t* codes = unit.query + row * padded;
      quantise(problem_.query + (firstRow + row) * problem_.headSize, fold, codes,
               unit.queryScale + row * headBlocks_);
      for (int64_t b = 0; b < headBlocks_; b++) {
        int32_t sum = 0;
        for (int c = 0; c < kBlock; c++) sum += codes[b * kBlock + c];
        unit.queryOffset[row * headBlocks_ + b] = -kKeyOffset * sum;
        unit.nan |= std::isnan(unit.queryScale[row * headBlocks_ + b]);
      }
    }
    return unit;
  }

  void scores(Unit& unit, const Rows& rows, int64_t firstKey, RowState& state) const {
    int64_t head = rows.batch * problem_.kvHeads + rows.kvHead;
    int64_t panel = head * tiles_ * kTileVectors + firstKey / kLanes;
    int row = 0;
    for (; row + kIntegerRows <= rows.count; row += kIntegerRows) scoreTile<kIntegerRows>(unit, row, panel, state);
    for (; row < rows.count; row++) scoreTile<1>(unit, row, panel, state);
  }

  void softmax(Unit& unit, const Rows& rows, int64_t firstKey, RowState& state) const {
    int64_t head = rows.batch * problem_.kvHeads + rows.kvHead;
    // Comparisons below lose NaN, so it is looked for, but only where it can be.
    if (unit.nan || keyNaN_[head * tiles_ + firstKey / kTileKeys] || problem_.bias) {
      for (int row = 0; row < rows.count; row++) {
        if (anyNaN(state.scores + row * kTileKeys)) state.reference[row] = kNaN;
      }
    }
    for (int row = 0; row < rows.count; row += kSoftmaxRows) {
      softmaxRows(unit, row, std::min(kSoftmaxRows, rows.count - row), state);
    }
  }

  void accumulate(Unit& unit, const Rows& rows, int64_t firstKey, RowState& state) const {
    int64_t head = rows.batch * problem_.kvHeads + rows.kvHead;
    int64_t block = (head * tiles_ + firstKey / kTileKeys) * kTileBlocks;
    int row = 0;
    for (; row + kIntegerRows <= rows.count; row += kIntegerRows) weightedSum<kIntegerRows>(unit, row, block, state);
    for (; row < rows.count; row++) weightedSum<1>(unit, row, block, state);
  }

 protected:
  static constexpr int kTileBlocks = kTileKeys / kBlock;
  static_assert(kTileBlocks == 2);
  static constexpr int kGroups = kBlock / 4;  // products of 4 elements in a block
  // The least rms ripple.
  static constexpr float kSchraudolphCorrection = 60801.f / 1048576.f;
  // Below it, 60 times over the smallest weight is less than half a step.
  static constexpr float kSmallestWeight = 0x1p-70f;
  // log2 units above the reference at which P would pass 448 (the affine value passes 135.75).
  static constexpr float kRollback = 135.75f - 127.f + kSchraudolphCorrection;

  // Rows whose blocks of P have their scales computed in one vector, a lane a block.
  static constexpr int kSoftmaxRows = kLanes / kTileBlocks;

  // 2^x as a bf16 whose bits are 2^7 * (x + 127 - c), rounded to nearest even by adding a number whose last bit is 1.
  // At least 2^kSmallestExponent.
  MXATTN_INLINE Floats schraudolph(Floats x) {
    constexpr float kRound = 12582912.f;  // 1.5 * 2^23
    Floats affine = maximum(x, splat(kSmallestExponent)) * 128.f - kSchraudolphCorrection * 128.f;
    return fromBits(bits(affine + (kRound + 127 * 128)) << 16);
  }

  // A row whose scores rose too far above its reference, or had none.
  static void moveReference(int row, RowState& state) {
    float& reference = state.reference[row];
    float top = largestScore(state.scores + row * kTileKeys)[0];
    if (reference == -kInfinity) {
      reference = top;
    } else {
      state.raise(row, top);
    }
  }

  void softmaxRows(Unit& unit, int first, int count, RowState& state) const {
    Floats largest[kLanes];
    for (int r = 0; r < kSoftmaxRows; r++) {
      for (int b = 0; b < kTileBlocks; b++) largest[r * kTileBlocks + b] = Floats{};
      if (r >= count) continue;
      float* scores = state.scores + (first + r) * kTileKeys;
      float& reference = state.reference[first + r];
      Floats top = load<Floats>(scores);
      for (int v = 1; v < kTileVectors; v++) top = maximum(load<Floats>(scores + v * kLanes), top);
      if (anyLane(top > reference + kRollback)) moveReference(first + r, state);
      // Nothing visible yet, or NaN: P is 0.
      if (!(reference > -kInfinity)) {
        for (int v = 0; v < kTileVectors; v++) store(scores + v * kLanes, Floats{});
        continue;
      }
      for (int b = 0; b < kTileBlocks; b++) {
        Floats blockTop{};
        for (int v = 0; v < kBlockVectors; v++) {
          float* at = scores + b * kBlock + v * kLanes;
          Floats p = schraudolph(load<Floats>(at) - reference);
          store(at, p);
          blockTop = maximum(p, blockTop);
        }
        largest[r * kTileBlocks + b] = blockTop;
      }
    }
    Floats tops = maximaOf(largest);
    Ints biased = scaleExponent(tops, probability_);
    alignas(64) float inverse[kLanes];
    float* scales = unit.probabilityScale + first * kTileBlocks;
    store(inverse, inverseScaleOf(biased) * probability_.toInteger);
    // Masked keys have the smallest weight, which rounds to 0 beside a larger one. A block with nothing larger is 0.
    store(scales, tops < kSmallestWeight ? Floats{} : scaleOf(biased) / probability_.toInteger);
    for (int r = 0; r < count; r++) {
      const float* p = state.scores + (first + r) * kTileKeys;
      uint8_t* codes = unit.probability + (first + r) * kTileKeys;
      Ints integers[kTileVectors];
      for (int v = 0; v < kTileVectors; v++) {
        Floats scaled = load<Floats>(p + v * kLanes) * inverse[r * kTileBlocks + v / kBlockVectors];
        integers[v] = probabilityIntegers(scaled);
      }
      storeBytes(codes, integers);
      float* sums = state.sum + (first + r) * kLanes;
      store(sums, load<Floats>(sums) + sumOfCodes(codes, scales + r * kTileBlocks));
    }
  }

  // E2M3 times 8 of weights already times 8: rounded to nearest even, saturated at 60.
  MXATTN_INLINE Ints probabilityIntegers(Floats x) {
    Floats power = fromBits(bits(x) & 0x7f800000);
    Floats magic = maximum(power, splat(8.f)) * (1.5f * 0x1p20f);
    return toInts(minimum((x + magic) - magic, splat(60.f)));
  }

  // The weights of a row, added up in groups of 4 keys per lane.
  MXATTN_INLINE Floats sumOfCodes(const uint8_t* codes, const float* scales) {
    Floats sum{};
    for (int v = 0; v < kTileKeys / (4 * kLanes); v++) {
      Ints groups = dot4(Ints{}, load<Ints>(codes + v * 4 * kLanes), splat(0x01010101));
      Floats scale = iota(LaneSequence{}) + v * kLanes < kBlock / 4 ? splat(scales[0]) : splat(scales[1]);
      sum += toFloats(groups) * scale;
    }
    return sum;
  }

  void quantise(const float* from, float factor, int8_t* codes, float* scales) const {
    int64_t size = problem_.headSize, padded = headBlocks_ * kBlock;
    alignas(64) float x[kLargestHeadSize];
    for (int64_t c = 0; c < size; c++) x[c] = from[c] * factor;
    for (int64_t c = size; c < padded; c++) x[c] = 0;
    if (rotated_) {
      hadamard(x, size);
      auto norm = static_cast<float>(1 / std::sqrt(static_cast<double>(size)));
      for (int64_t c = 0; c < size; c++) x[c] *= norm;
    }
    quantiseRow(x, headBlocks_, operand_, codes, scales);
  }

  // Keys of one tile as [panel of kLanes keys][block][4 channels at a time][key][channel], code + kKeyOffset.
  void packKeys(int64_t head, int64_t tile) {
    int64_t padded = headBlocks_ * kBlock;
    bool nan = false;
    int8_t codes[kLargestHeadSize];
    float scales[kLargestHeadSize / kBlock];
    for (int64_t j = 0; j < kTileKeys; j++) {
      int64_t key = tile * kTileKeys + j;
      if (key < problem_.keyLength) {
        const float* from = problem_.key + (head * problem_.keyLength + key) * problem_.headSize;
        quantise(from, 1.f, codes, scales);
      } else {
        std::memset(codes, 0, padded);
        std::memset(scales, 0, headBlocks_ * sizeof(float));
      }
      int64_t panel = (head * tiles_ + tile) * kTileVectors + j / kLanes;
      uint8_t* to = keys_ + panel * keyPanelBytes_ + j % kLanes * 4;
      for (int64_t g = 0; g < headBlocks_ * kGroups; g++) {
        uint32_t four;
        std::memcpy(&four, codes + g * 4, 4);
        four ^= kKeyOffset * 0x01010101u;  // adds 128, or nothing
        std::memcpy(to + g * kLanes * 4, &four, 4);
      }
      for (int64_t b = 0; b < headBlocks_; b++) {
        keyScales_[(panel * headBlocks_ + b) * kLanes + j % kLanes] = scales[b];
        nan |= std::isnan(scales[b]);
      }
    }
    keyNaN_[head * tiles_ + tile] = nan;
  }

  // Values of one tile as [block of 32 tokens][group of kLanes channels][4 tokens at a time][channel][token].
  void packValues(int64_t head, int64_t tile) {
    int64_t size = problem_.valueHeadSize;
    for (int64_t b = 0; b < kTileBlocks; b++) {
      int64_t first = tile * kTileKeys + b * kBlock;
      int tokens = static_cast<int>(std::clamp<int64_t>(problem_.keyLength - first, 0, kBlock));
      const float* from = problem_.value + (head * problem_.keyLength + first) * size;
      for (int64_t g = 0; g < channelGroups_; g++) {
        int64_t at = ((head * tiles_ + tile) * kTileBlocks + b) * channelGroups_ + g;
        int lanes = static_cast<int>(std::min<int64_t>(kLanes, size - g * kLanes));
        Floats x[kBlock];
        Floats largest{};
        for (int t = 0; t < kBlock; t++) {
          x[t] = Floats{};
          if (t < tokens) {
            const float* row = from + t * size + g * kLanes;
            if (lanes == kLanes) {
              x[t] = load<Floats>(row);
            } else {
              for (int j = 0; j < lanes; j++) x[t][j] = row[j];
            }
          }
          largest = largerMagnitude(largest, x[t]);
        }
        Ints biased = scaleExponent(largest, operand_);
        Floats inverse = inverseScaleOf(biased);
        store(valueScales_ + at * kLanes, integerScale(largest, biased, operand_));
        int8_t* to = values_ + at * kBlockBytes;
        for (int t = 0; t < kBlock; t += 4) {
          Ints four{};
          for (int i = 0; i < 4; i++) {
            four |= (elementIntegers(x[t + i] * inverse, operand_) & 0xff) << (8 * i);
          }
          store(to + t * kLanes, four);
        }
      }
    }
  }

  template <int R>
  void scoreTile(const Unit& unit, int row, int64_t panel, RowState& state) const {
    int64_t padded = headBlocks_ * kBlock;
    const int8_t* query = unit.query + row * padded;
    const float* queryScale = unit.queryScale + row * headBlocks_;
    const int32_t* offset = unit.queryOffset + row * headBlocks_;
    for (int v = 0; v < kTileVectors; v += kIntegerPanels) {
      const uint8_t* keys = keys_ + (panel + v) * keyPanelBytes_;
      const float* keyScale = keyScales_ + (panel + v) * headBlocks_ * kLanes;
      Floats sum[R][kIntegerPanels] = {};
      for (int64_t b = 0; b < headBlocks_; b++) {
        Ints product[R][kIntegerPanels];
        for (int r = 0; r < R; r++) {
          for (int p = 0; p < kIntegerPanels; p++) product[r][p] = splat(offset[r * headBlocks_ + b]);
        }
#pragma GCC unroll 8
        for (int g = 0; g < kGroups; g++) {
          Ints k[kIntegerPanels];
          for (int p = 0; p < kIntegerPanels; p++) {
            k[p] = load<Ints>(keys + p * keyPanelBytes_ + b * kBlockBytes + g * kLanes * 4);
          }
          for (int r = 0; r < R; r++) {
            Ints q = splatBytes(query + r * padded + b * kBlock + g * 4);
            for (int p = 0; p < kIntegerPanels; p++) product[r][p] = dot4(product[r][p], k[p], q);
          }
        }
        for (int p = 0; p < kIntegerPanels; p++) {
          Floats scale = load<Floats>(keyScale + (p * headBlocks_ + b) * kLanes);
          for (int r = 0; r < R; r++) {
            sum[r][p] += toFloats(product[r][p]) * (scale * queryScale[r * headBlocks_ + b]);
          }
        }
      }
      for (int r = 0; r < R; r++) {
        for (int p = 0; p < kIntegerPanels; p++) {
          store(state.scores + (row + r) * kTileKeys + (v + p) * kLanes, sum[r][p]);
        }
      }
    }
  }

  template <int R>
  void weightedSum(const Unit& unit, int row, int64_t block, RowState& state) const {
    int64_t g = 0;
    for (; g + kIntegerPanels <= channelGroups_; g += kIntegerPanels) {
      channels<R, kIntegerPanels>(unit, row, block, g, state);
    }
    for (; g < channelGroups_; g++) channels<R, 1>(unit, row, block, g, state);
  }

  template <int R, int C>
  void channels(const Unit& unit, int row, int64_t block, int64_t group, RowState& state) const {
    int64_t padded = channelGroups_ * kLanes;
    float* out = state.out + row * padded + group * kLanes;
    Floats sum[R][C];
    for (int r = 0; r < R; r++) {
      for (int c = 0; c < C; c++) sum[r][c] = load<Floats>(out + r * padded + c * kLanes);
    }
    for (int b = 0; b < kTileBlocks; b++) {
      int64_t at = (block + b) * channelGroups_ + group;
      const int8_t* values = values_ + at * kBlockBytes;
      const uint8_t* codes = unit.probability + row * kTileKeys + b * kBlock;
      Ints product[R][C] = {};
#pragma GCC unroll 8
      for (int t = 0; t < kGroups; t++) {
        Ints v[C];
        for (int c = 0; c < C; c++) v[c] = load<Ints>(values + c * kBlockBytes + t * kLanes * 4);
        for (int r = 0; r < R; r++) {
          Ints p = splatBytes(codes + r * kTileKeys + t * 4);
          for (int c = 0; c < C; c++) product[r][c] = dot4(product[r][c], p, v[c]);
        }
      }
      for (int c = 0; c < C; c++) {
        Floats scale = load<Floats>(valueScales_ + (at + c) * kLanes);
        for (int r = 0; r < R; r++) {
          sum[r][c] += toFloats(product[r][c]) * (scale * unit.probabilityScale[(row + r) * kTileBlocks + b]);
        }
      }
    }
    for (int r = 0; r < R; r++) {
      for (int c = 0; c < C; c++) store(out + r * padded + c * kLanes, sum[r][c]);
    }
  }

  const Problem& problem_;
  ElementFormat operand_;
  ElementFormat probability_;
  int64_t headBlocks_;
  bool rotated_;
  int64_t tiles_;
  int64_t channelGroups_;
  int64_t keyPanelBytes_;
  uint8_t* keys_ = nullptr;
  float* keyScales_ = nullptr;
  int8_t* values_ = nullptr;
  float* valueScales_ = nullptr;
  uint8_t* keyNaN_ = nullptr;  // [tile]: some key is not a number
};
