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
    query_ = operandFormat(problem.precision);
    key_ = problem.cache ? operandFormat(problem.cacheFormat) : query_;
    probability_ = problem.precision == Precision::kMxfp4 ? kE2m3Ceil : kE2m3Floor;
    headBlocks_ = ceilDivide(problem.headSize, kBlock);
    // The rotation needs a power of two (and here a whole vector); other head sizes do without it.
    rotated_ = (problem.headSize & (problem.headSize - 1)) == 0 && problem.headSize >= kLanes;
    channelGroups_ = ceilDivide(problem.valueHeadSize, kLanes);
    keyPanelBytes_ = headBlocks_ * kBlockBytes;
    // A tile holds, one after the other: key codes, key scales, value codes, value scales, and whether a key is NaN.
    keyScalesAt_ = kTileVectors * keyPanelBytes_;
    valuesAt_ = keyScalesAt_ + kTileVectors * headBlocks_ * kLanes * sizeof(float);
    valueScalesAt_ = valuesAt_ + kTileBlocks * channelGroups_ * kBlockBytes;
    keyNaNAt_ = valueScalesAt_ + kTileBlocks * channelGroups_ * kLanes * sizeof(float);
    tileCount_ = ceilDivide(problem.keyLength, kTileKeys);
    if (problem.cache) {
      tiles_ = *problem.cache;
    } else {
      chunk_ = arena.take<uint8_t>(problem.batch * problem.kvHeads * tileCount_ * tileBytes());
      tiles_ = Tiles{&chunk_, tileCount_, tileBytes()};
    }
  }
  BlockScaledEngine(const BlockScaledEngine&) = delete;
  BlockScaledEngine& operator=(const BlockScaledEngine&) = delete;

  int64_t tileBytes() const { return keyNaNAt_ + 64; }

  // Quantises the keys and values of the call; of a cache, the new ones and the block they join.
  void pack(const Parallel& parallel) {
    int64_t first = problem_.firstNewKey / kTileKeys, count = tileCount_ - first;
    int64_t heads = problem_.batch * problem_.kvHeads;
    parallel.each(heads * count, [&](size_t index) {
      int64_t head = index / count, tile = first + index % count;
      packKeys(head, tile);
      packValues(head, tile);
    });
    if (!problem_.cacheTail || problem_.keyLength % kTileKeys == 0) return;
    int64_t size = problem_.valueHeadSize, lastTile = (tileCount_ - 1) * kTileKeys;
    for (int64_t head = 0; head < heads; head++) {
      for (int64_t token = std::max(lastTile, problem_.firstNewKey); token < problem_.keyLength; token++) {
        std::memcpy(problem_.cacheTail + (head * kTileKeys + token % kTileKeys) * size, newValue(head, token),
                    size * sizeof(float));
      }
    }
  }

  // Back to floats, keys still rotated back.
  void readKeys(float* out) const {
    int64_t size = problem_.headSize;
    for (int64_t head = 0; head < problem_.batch * problem_.kvHeads; head++) {
      for (int64_t token = 0; token < problem_.keyLength; token++) {
        const uint8_t* tile = tiles_.at(head, token / kTileKeys);
        int64_t panel = token % kTileKeys / kLanes, lane = token % kLanes;
        const uint8_t* codes = tile + panel * keyPanelBytes_ + lane * 4;
        auto scales = reinterpret_cast<const float*>(tile + keyScalesAt_) + panel * headBlocks_ * kLanes + lane;
        alignas(64) float x[kLargestHeadSize];
        for (int64_t c = 0; c < size; c++) {
          auto code = static_cast<int8_t>(codes[c / 4 * kLanes * 4 + c % 4] - kKeyOffset);
          x[c] = code * scales[c / kBlock * kLanes];
        }
        // The rotation is its own inverse.
        if (rotated_) rotate(x);
        std::memcpy(out + (head * problem_.keyLength + token) * size, x, size * sizeof(float));
      }
    }
  }

  void readValues(float* out) const {
    int64_t size = problem_.valueHeadSize;
    for (int64_t head = 0; head < problem_.batch * problem_.kvHeads; head++) {
      for (int64_t token = 0; token < problem_.keyLength; token++) {
        const uint8_t* tile = tiles_.at(head, token / kTileKeys);
        int64_t block = token % kTileKeys / kBlock * channelGroups_, row = token % kBlock;
        for (int64_t c = 0; c < size; c++) {
          int64_t at = block + c / kLanes;
          auto codes = reinterpret_cast<const int8_t*>(tile + valuesAt_) + at * kBlockBytes;
          auto scales = reinterpret_cast<const float*>(tile + valueScalesAt_) + at * kLanes;
          out[(head * problem_.keyLength + token) * size + c] =
              codes[(row / 4 * kLanes + c % kLanes) * 4 + row % 4] * scales[c % kLanes];
        }
      }
    }
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
      quantise(problem_.query + (firstRow + row) * problem_.headSize, fold, query_, codes,
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
    const uint8_t* tile = tiles_.at(head, firstKey / kTileKeys);
    int row = 0;
    for (; row + kIntegerRows <= rows.count; row += kIntegerRows) scoreTile<kIntegerRows>(unit, row, tile, state);
    for (; row < rows.count; row++) scoreTile<1>(unit, row, tile, state);
  }

  void softmax(Unit& unit, const Rows& rows, int64_t firstKey, RowState& state) const {
    int64_t head = rows.batch * problem_.kvHeads + rows.kvHead;
    // Comparisons below lose NaN, so it is looked for, but only where it can be.
    if (unit.nan || tiles_.at(head, firstKey / kTileKeys)[keyNaNAt_] || problem_.bias) {
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
    const uint8_t* tile = tiles_.at(head, firstKey / kTileKeys);
    int row = 0;
    for (; row + kIntegerRows <= rows.count; row += kIntegerRows) weightedSum<kIntegerRows>(unit, row, tile, state);
    for (; row < rows.count; row++) weightedSum<1>(unit, row, tile, state);
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

  static ElementFormat operandFormat(Precision precision) {
    return precision == Precision::kMxfp4 ? kE2m1Ceil : kE2m3Floor;
  }

  void rotate(float* x) const {
    int64_t size = problem_.headSize;
    hadamard(x, size);
    auto norm = static_cast<float>(1 / std::sqrt(static_cast<double>(size)));
    for (int64_t c = 0; c < size; c++) x[c] *= norm;
  }

  void quantise(const float* from, float factor, ElementFormat format, int8_t* codes, float* scales) const {
    int64_t size = problem_.headSize, padded = headBlocks_ * kBlock;
    alignas(64) float x[kLargestHeadSize];
    for (int64_t c = 0; c < size; c++) x[c] = from[c] * factor;
    for (int64_t c = size; c < padded; c++) x[c] = 0;
    if (rotated_) rotate(x);
    quantiseRow(x, headBlocks_, format, codes, scales);
  }

  const float* newKey(int64_t head, int64_t token) const {
    int64_t count = problem_.keyLength - problem_.firstNewKey;
    return problem_.key + (head * count + token - problem_.firstNewKey) * problem_.headSize;
  }

  const float* newValue(int64_t head, int64_t token) const {
    int64_t count = problem_.keyLength - problem_.firstNewKey;
    return problem_.value + (head * count + token - problem_.firstNewKey) * problem_.valueHeadSize;
  }

  // The value of a token of a tile that new tokens join.
  const float* valueOf(int64_t head, int64_t token) const {
    if (token >= problem_.firstNewKey) return newValue(head, token);
    return problem_.cacheTail + (head * kTileKeys + token % kTileKeys) * problem_.valueHeadSize;
  }

  // Keys of one tile as [panel of kLanes keys][block][4 channels at a time][key][channel], code + kKeyOffset. Those of
  // a cache are there already; what lies past the last key does not matter, since it is masked.
  void packKeys(int64_t head, int64_t tile) {
    uint8_t* to = tiles_.at(head, tile);
    int8_t codes[kLargestHeadSize];
    float scales[kLargestHeadSize / kBlock];
    int64_t first = std::max(tile * kTileKeys, problem_.firstNewKey);
    int64_t end = std::min(tile * kTileKeys + kTileKeys, problem_.keyLength);
    bool nan = first > tile * kTileKeys && to[keyNaNAt_];
    for (int64_t key = first; key < end; key++) {
      quantise(newKey(head, key), 1.f, key_, codes, scales);
      int64_t panel = key % kTileKeys / kLanes, lane = key % kLanes;
      uint8_t* panelCodes = to + panel * keyPanelBytes_ + lane * 4;
      for (int64_t g = 0; g < headBlocks_ * kGroups; g++) {
        uint32_t four;
        std::memcpy(&four, codes + g * 4, 4);
        four ^= kKeyOffset * 0x01010101u;  // adds 128, or nothing
        std::memcpy(panelCodes + g * kLanes * 4, &four, 4);
      }
      auto panelScales = reinterpret_cast<float*>(to + keyScalesAt_) + panel * headBlocks_ * kLanes + lane;
      for (int64_t b = 0; b < headBlocks_; b++) {
        panelScales[b * kLanes] = scales[b];
        nan |= std::isnan(scales[b]);
      }
    }
    to[keyNaNAt_] = nan;
  }

  // Values of one tile as [block of 32 tokens][group of kLanes channels][4 tokens at a time][channel][token].
  void packValues(int64_t head, int64_t tile) {
    int64_t size = problem_.valueHeadSize;
    uint8_t* base = tiles_.at(head, tile);
    for (int64_t b = 0; b < kTileBlocks; b++) {
      int64_t first = tile * kTileKeys + b * kBlock;
      // A block of a cache that no new token joins stays as it is.
      if (first + kBlock <= problem_.firstNewKey) continue;
      int tokens = static_cast<int>(std::clamp<int64_t>(problem_.keyLength - first, 0, kBlock));
      for (int64_t g = 0; g < channelGroups_; g++) {
        int64_t at = b * channelGroups_ + g;
        int lanes = static_cast<int>(std::min<int64_t>(kLanes, size - g * kLanes));
        Floats x[kBlock];
        Floats largest{};
        for (int t = 0; t < kBlock; t++) {
          x[t] = Floats{};
          if (t < tokens) {
            const float* row = valueOf(head, first + t) + g * kLanes;
            if (lanes == kLanes) {
              x[t] = load<Floats>(row);
            } else {
              for (int j = 0; j < lanes; j++) x[t][j] = row[j];
            }
          }
          largest = largerMagnitude(largest, x[t]);
        }
        Ints biased = scaleExponent(largest, key_);
        Floats inverse = inverseScaleOf(biased);
        store(reinterpret_cast<float*>(base + valueScalesAt_) + at * kLanes, integerScale(largest, biased, key_));
        uint8_t* to = base + valuesAt_ + at * kBlockBytes;
        for (int t = 0; t < kBlock; t += 4) {
          Ints four{};
          for (int i = 0; i < 4; i++) {
            four |= (elementIntegers(x[t + i] * inverse, key_) & 0xff) << (8 * i);
          }
          store(to + t * kLanes, four);
        }
      }
    }
  }

  template <int R>
  void scoreTile(const Unit& unit, int row, const uint8_t* tile, RowState& state) const {
    int64_t padded = headBlocks_ * kBlock;
    const int8_t* query = unit.query + row * padded;
    const float* queryScale = unit.queryScale + row * headBlocks_;
    const int32_t* offset = unit.queryOffset + row * headBlocks_;
    for (int v = 0; v < kTileVectors; v += kIntegerPanels) {
      const uint8_t* keys = tile + v * keyPanelBytes_;
      auto keyScale = reinterpret_cast<const float*>(tile + keyScalesAt_) + v * headBlocks_ * kLanes;
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
  void weightedSum(const Unit& unit, int row, const uint8_t* tile, RowState& state) const {
    int64_t g = 0;
    for (; g + kIntegerPanels <= channelGroups_; g += kIntegerPanels) {
      channels<R, kIntegerPanels>(unit, row, tile, g, state);
    }
    for (; g < channelGroups_; g++) channels<R, 1>(unit, row, tile, g, state);
  }

  template <int R, int C>
  void channels(const Unit& unit, int row, const uint8_t* tile, int64_t group, RowState& state) const {
    int64_t padded = channelGroups_ * kLanes;
    float* out = state.out + row * padded + group * kLanes;
    Floats sum[R][C];
    for (int r = 0; r < R; r++) {
      for (int c = 0; c < C; c++) sum[r][c] = load<Floats>(out + r * padded + c * kLanes);
    }
    for (int b = 0; b < kTileBlocks; b++) {
      int64_t at = b * channelGroups_ + group;
      auto values = reinterpret_cast<const int8_t*>(tile + valuesAt_) + at * kBlockBytes;
      auto valueScales = reinterpret_cast<const float*>(tile + valueScalesAt_) + at * kLanes;
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
        Floats scale = load<Floats>(valueScales + c * kLanes);
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
  ElementFormat query_;
  ElementFormat key_;  // and value
  ElementFormat probability_;
  int64_t headBlocks_;
  bool rotated_;
  int64_t channelGroups_;
  int64_t keyPanelBytes_;
  // Offsets within a tile, in bytes.
  int64_t keyScalesAt_;
  int64_t valuesAt_;
  int64_t valueScalesAt_;
  int64_t keyNaNAt_;
  int64_t tileCount_;
  uint8_t* chunk_ = nullptr;
  Tiles tiles_;
};
