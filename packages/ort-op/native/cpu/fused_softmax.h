// Fused-Softmax Attention (arXiv 2611.09225) on MX blocks, in int8.
//
// Query and key are rotated (Hadamard) and quantised along the head, value along the tokens. Each product of two
// 32-element blocks is exact in integers. Where the blocks of a row are aligned (block_align.h) so is the sum over the
// whole head, and one multiplication makes it a score; else the product of each block enters a float with the product of
// the two scales. Sums of a few such terms fit 24 bits, so scores equal those of exact arithmetic on the quantised
// operands either way.
//
// Softmax per row: the reference is the maximum of the first tile with a visible key, then frozen. P = 2^(score -
// reference) is Schraudolph's approximation (the bits of the float are an affine function of the exponent),
// rounded to bf16, then quantised to E2M3 in blocks of 32 keys. A score more than kRollback above the reference
// raises it to the tile's maximum and rescales what was accumulated. The sum is that of the quantised P.
//
// P of several tiles is kept before it meets V, so that the output is loaded and stored less often.

class BlockScaledEngine {
 public:
  // Tiles whose P waits: codes of 96 rows are 24 KiB then, which leaves room for 16 channels of V (4 KiB) in a first
  // level cache of 32 KiB.
  static constexpr int kPendingTiles = 4;
  // With fewer rows the output is small, and P does not wait.
  static constexpr int kFewRows = 16;

  struct Unit {
    QueryRows query;
    uint8_t* probability;     // [kRowBlock][kPendingKeys], E2M3 times 8
    float* probabilityScale;  // [kPendingTiles][kRowBlock][blocks of a tile]
    int pending;
    // Of the tile at work and those that wait: the operands, perhaps unpacked to `unpacked`.
    const uint8_t* tiles[kPendingTiles];
    uint8_t* unpacked;
    // How many may wait: one where there are few rows, so that what was unpacked is still in the cache.
    int most;
  };

  BlockScaledEngine(const Problem& problem, Arena& arena)
      : problem_(problem),
        query_(operandFormat(problem.precision)),
        packed_(problem, problem.cache ? cachedFormat(problem.cacheFormat) : query_),
        cached_(problem) {
    probability_ = problem.precision == Precision::kMxfp4 ? kE2m3Ceil : kE2m3Floor;
    tileCount_ = ceilDivide(problem.keyLength, kTileKeys);
    if (!problem.cache) chunk_ = arena.take<uint8_t>(problem.batch * problem.kvHeads * tileCount_ * packed_.bytes());
  }
  BlockScaledEngine(const BlockScaledEngine&) = delete;
  BlockScaledEngine& operator=(const BlockScaledEngine&) = delete;

  // Quantises the keys and values of the call; with a cache, the new ones into it.
  void pack(const Parallel& parallel) {
    if (problem_.cache) {
      cached_.append(parallel);
      return;
    }
    parallel.each(problem_.batch * problem_.kvHeads * tileCount_, [&](size_t index) {
      packKeys(index / tileCount_, index % tileCount_);
      packValues(index / tileCount_, index % tileCount_);
    });
  }

  Unit begin(const Rows& rows, Arena& arena) const {
    int64_t blocks = packed_.headBlocks();
    Unit unit{};
    unit.query = QueryRows::take(blocks, arena);
    unit.probability = arena.take<uint8_t>(kRowBlock * kPendingKeys);
    // A group of rows writes a whole vector of scales.
    unit.probabilityScale = arena.take<float>(kPendingTiles * kRowBlock * kTileBlocks + kLanes);
    if (problem_.cache) unit.unpacked = arena.take<uint8_t>(kPendingTiles * packed_.bytes());
    if (rows.count == 0) return unit;
    unit.most = rows.count < kFewRows ? 1 : kPendingTiles;
    int64_t group = problem_.heads / problem_.kvHeads;
    int64_t firstRow = (rows.batch * problem_.kvHeads + rows.kvHead) * group * problem_.queryLength + rows.first;
    auto fold = static_cast<float>(problem_.scale * 1.4426950408889634);  // scale * log2(e)
    for (int row = 0; row < rows.count; row++) {
      int32_t exponents[kLargestHeadSize / kBlock];
      quantise(problem_.query + (firstRow + row) * problem_.headSize, fold, query_,
               unit.query.codes + row * blocks * kBlock, unit.query.scales + row * blocks, exponents);
      unit.query.put(row, blocks, exponents, query_);
    }
    return unit;
  }

  void scores(Unit& unit, const Rows& rows, int64_t firstKey, RowState& state) const {
    const uint8_t* tile = takeTile(unit, rows, firstKey / kTileKeys);
    forRowTiles<kIntegerRows>(rows.count, [&](auto size, int row) { scoreTile<size.value>(unit, row, tile, state); });
  }

  void softmax(Unit& unit, const Rows& rows, int64_t, RowState& state) const {
    // Comparisons below lose NaN, so it is looked for, but only where it can be.
    if (unit.query.nan || packed_.facts(unit.tiles[unit.pending]).nan || problem_.bias) {
      for (int row = 0; row < rows.count; row++) {
        if (anyNaN(state.scores + row * kTileKeys)) state.reference[row] = kNaN;
      }
    }
    for (int row = 0; row < rows.count; row += kSoftmaxRows) {
      softmaxRows(unit, row, std::min(kSoftmaxRows, rows.count - row), state);
    }
    unit.pending++;
  }

  static bool full(const Unit& unit) { return unit.pending == unit.most; }

  void accumulate(Unit& unit, const Rows& rows, RowState& state) const {
    // Channels in the outer loop: their values stay in the first level cache for all rows.
    int64_t groups = packed_.channelGroups(), g = 0;
    for (; g + kIntegerPanels <= groups; g += kIntegerPanels) weightedSums<kIntegerPanels>(unit, rows, g, state);
    for (; g < groups; g++) weightedSums<1>(unit, rows, g, state);
    unit.pending = 0;
  }

 protected:
  static constexpr int kGroups = kBlock / 4;  // products of 4 elements in a block
  static constexpr int kBlockPanels = 2;
  static constexpr int kPendingKeys = kPendingTiles * kTileKeys;
  // Below it, 60 times over the smallest weight is less than half a step.
  static constexpr float kSmallestWeight = 0x1p-70f;
  // Norms up to which narrow sums of products are exact.
  static constexpr float kLargestNarrow = 32767.f;

  // Rows whose blocks of P have their scales computed in one vector, a lane a block.
  static constexpr int kSoftmaxRows = kLanes / kTileBlocks;

  // Makes a tile the one at work.
  const uint8_t* takeTile(Unit& unit, const Rows& rows, int64_t index) const {
    int64_t head = rows.batch * problem_.kvHeads + rows.kvHead;
    const uint8_t* tile;
    if (problem_.cache) {
      uint8_t* room = unit.unpacked + unit.pending * packed_.bytes();
      cached_.blocks().unpack(cached_.tile(head, index), packed_, room);
      tile = room;
    } else {
      tile = packedTile(head, index);
    }
    unit.tiles[unit.pending] = tile;
    return tile;
  }

  float* probabilityScales(const Unit& unit, int pending) const {
    return unit.probabilityScale + pending * kRowBlock * kTileBlocks;
  }

  // A row whose scores rose too far above its reference, or had none.
  void moveReference(Unit& unit, int row, RowState& state) const {
    float& reference = state.reference[row];
    float top = largestScore(state.scores + row * kTileKeys)[0];
    if (reference == -kInfinity) {
      reference = top;
      return;
    }
    // What waits shrinks as well, to zero where it would become subnormal.
    float factor = std::exp2(reference - top);
    for (int t = 0; t < unit.pending; t++) {
      float* scales = probabilityScales(unit, t) + row * kTileBlocks;
      for (int b = 0; b < kTileBlocks; b++) {
        scales[b] *= factor;
        if (scales[b] < kSmallestWeight) scales[b] = 0;
      }
    }
    state.raise(row, top);
  }

  void softmaxRows(Unit& unit, int first, int count, RowState& state) const {
    // Of every block of P the largest score, a block a lane after maximaOf.
    Floats largest[kLanes];
    alignas(64) float corrected[kLanes];
    for (int r = 0; r < kSoftmaxRows; r++) {
      for (int b = 0; b < kTileBlocks; b++) {
        largest[r * kTileBlocks + b] = splat(-kInfinity);
        corrected[r * kTileBlocks + b] = 0;
      }
      if (r >= count) continue;
      const float* scores = state.scores + (first + r) * kTileKeys;
      float& reference = state.reference[first + r];
      Floats top[kTileBlocks];
      for (int b = 0; b < kTileBlocks; b++) {
        top[b] = load<Floats>(scores + b * kBlock);
        for (int v = 1; v < kBlockVectors; v++) top[b] = maximum(load<Floats>(scores + b * kBlock + v * kLanes), top[b]);
      }
      if (anyLane(maximum(top[0], top[1]) > reference + kRollback)) moveReference(unit, first + r, state);
      // Nothing visible yet, or NaN: P is 0.
      if (!(reference > -kInfinity)) continue;
      for (int b = 0; b < kTileBlocks; b++) {
        largest[r * kTileBlocks + b] = top[b];
        corrected[r * kTileBlocks + b] = reference + kSchraudolphCorrection;
      }
    }
    Floats tops = schraudolph(maximaOf(largest), load<Floats>(corrected));
    Ints biased = scaleExponent(tops, probability_);
    alignas(64) float inverse[kLanes];
    float* scales = probabilityScales(unit, unit.pending) + first * kTileBlocks;
    store(inverse, inverseScaleOf(biased) * probability_.toInteger);
    // Masked keys have the smallest weight, which rounds to 0 beside a larger one. A block with nothing larger is 0.
    store(scales, tops < kSmallestWeight ? Floats{} : scaleOf(biased) / probability_.toInteger);
    for (int r = 0; r < count; r++) {
      const float* scores = state.scores + (first + r) * kTileKeys;
      uint8_t* codes = unit.probability + (first + r) * kPendingKeys + unit.pending * kTileKeys;
      if (!(state.reference[first + r] > -kInfinity)) {
        std::memset(codes, 0, kTileKeys);
        continue;
      }
      Ints integers[kTileVectors];
      Floats reference = splat(corrected[r * kTileBlocks]);
      for (int v = 0; v < kTileVectors; v++) {
        Floats p = schraudolph(load<Floats>(scores + v * kLanes), reference);
        integers[v] = probabilityIntegers(p * inverse[r * kTileBlocks + v / kBlockVectors]);
      }
      storeBytes(codes, integers, 60);
      float* sums = state.sum + (first + r) * kLanes;
      store(sums, load<Floats>(sums) + sumOfCodes(codes, scales + r * kTileBlocks));
    }
  }

  // E2M3 times 8 of weights already times 8, rounded to nearest even, not yet saturated at 60.
  MXATTN_INLINE Ints probabilityIntegers(Floats x) {
    // 1.5 * 2^20 times the power of two below x, at least 8: adding it rounds to a step.
    Ints magic = (bits(maximum(x, splat(8.f))) & 0x7f800000) + ((20 << 23) | 0x400000);
    return toInts((x + fromBits(magic)) - fromBits(magic));
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

  static ElementFormat cachedFormat(CacheFormat format) {
    return format == CacheFormat::kMxfp4 ? kE2m1Ceil : kE2m3Floor;
  }

  void quantise(const float* from, float factor, ElementFormat format, int8_t* codes, float* scales,
                int32_t* exponents) const {
    alignas(64) float x[kLargestHeadSize];
    prepareRow(from, problem_.headSize, factor, x);
    quantiseRow(x, packed_.headBlocks(), format, codes, scales, exponents);
  }

  uint8_t* packedTile(int64_t head, int64_t tile) const {
    return chunk_ + (head * tileCount_ + tile) * packed_.bytes();
  }

  void packKeys(int64_t head, int64_t tile) {
    uint8_t* to = packedTile(head, tile);
    int8_t codes[kLargestHeadSize];
    float scales[kLargestHeadSize / kBlock];
    int32_t exponents[kLargestHeadSize / kBlock];
    int64_t first = tile * kTileKeys, count = std::min<int64_t>(kTileKeys, problem_.keyLength - first);
    packed_.startKeys(to, count);
    for (int64_t key = 0; key < count; key++) {
      quantise(problem_.key + (head * problem_.keyLength + first + key) * problem_.headSize, 1.f, packed_.format(), codes,
               scales, exponents);
      packed_.putKey(to, key, codes, scales, exponents);
    }
  }

  void packValues(int64_t head, int64_t tile) {
    int64_t size = problem_.valueHeadSize;
    for (int64_t b = 0; b < kTileBlocks; b++) {
      int64_t first = tile * kTileKeys + b * kBlock;
      int64_t tokens = std::clamp<int64_t>(problem_.keyLength - first, 0, kBlock);
      const float* from = problem_.value + (head * problem_.keyLength + first) * size;
      for (int64_t g = 0; g < packed_.channelGroups(); g++) {
        Floats x[kBlock] = {};
        for (int64_t t = 0; t < tokens; t++) x[t] = loadFirst(from + t * size + g * kLanes, size - g * kLanes);
        packed_.putValues(packedTile(head, tile), b, g, x);
      }
    }
  }

  template <int R>
  void scoreTile(const Unit& unit, int row, const uint8_t* tile, RowState& state) const {
    const TileFacts& facts = packed_.facts(tile);
    bool aligned = facts.aligned;
    float norm = 0;
    for (int r = 0; r < R; r++) {
      aligned &= unit.query.aligned[row + r];
      norm = std::max(norm, unit.query.norm[row + r]);
    }
    bool narrow = kNarrowSums && norm * facts.keyNorm <= kLargestNarrow;
    if (kNarrowSums) aligned &= narrow;
    if (aligned) {
      for (int panel = 0; panel < kTileVectors; panel += kIntegerPanels) {
        if constexpr (kNarrowSums) {
          scoreNarrow<R>(unit, row, tile, panel, state);
        } else {
          scoreAligned<R>(unit, row, tile, panel, state);
        }
      }
      return;
    }
    for (int panel = 0; panel < kTileVectors; panel += kBlockPanels) {
      if (narrow) {
        scoreBlocks<R, kNarrowSums>(unit, row, tile, panel, state);
      } else {
        scoreBlocks<R, false>(unit, row, tile, panel, state);
      }
    }
  }

  // Scores of R rows and kIntegerPanels panels of keys whose products add up along the whole head.
  template <int R>
  void scoreAligned(const Unit& unit, int row, const uint8_t* tile, int panel, RowState& state) const {
    int64_t padded = packed_.headBlocks() * kBlock, stride = packed_.panelBytes();
    const uint8_t* keys = packed_.keys(tile, panel);
    const int8_t* query = unit.query.codes + row * padded;
    Ints product[R][kIntegerPanels];
    for (int r = 0; r < R; r++) {
      for (int p = 0; p < kIntegerPanels; p++) product[r][p] = splat(unit.query.offset[row + r]);
    }
#pragma GCC unroll 8
    for (int64_t g = 0; g < padded / 4; g++) {
      Ints k[kIntegerPanels];
      for (int p = 0; p < kIntegerPanels; p++) k[p] = load<Ints>(keys + p * stride + g * kLanes * 4);
      for (int r = 0; r < R; r++) {
        Ints q = splatBytes(query + r * padded + g * 4);
        for (int p = 0; p < kIntegerPanels; p++) product[r][p] = dot4(product[r][p], k[p], q);
      }
    }
    storeScores<R>(unit, row, tile, panel, product, state);
  }

  // The same, with sums that are widened after every block.
  template <int R>
  void scoreNarrow(const Unit& unit, int row, const uint8_t* tile, int panel, RowState& state) const {
    int64_t blocks = packed_.headBlocks(), padded = blocks * kBlock, stride = packed_.panelBytes();
    const uint8_t* keys = packed_.keys(tile, panel);
    const int32_t* weights = packed_.weights(tile, panel);
    const int8_t* query = unit.query.codes + row * padded;
    const int32_t* offsets = unit.query.narrowOffsets + row * blocks;
    Ints product[R][kIntegerPanels] = {};
    for (int64_t b = 0; b < blocks; b++) {
      Sums sums[R][kIntegerPanels];
      for (int r = 0; r < R; r++) {
        for (int p = 0; p < kIntegerPanels; p++) sums[r][p] = reinterpret_cast<Sums>(splat(offsets[r * blocks + b]));
      }
#pragma GCC unroll 8
      for (int g = 0; g < kGroups; g++) {
        Ints k[kIntegerPanels];
        for (int p = 0; p < kIntegerPanels; p++) k[p] = load<Ints>(keys + p * stride + b * kBlockBytes + g * kLanes * 4);
        for (int r = 0; r < R; r++) {
          Ints q = splatBytes(query + r * padded + b * kBlock + g * 4);
          for (int p = 0; p < kIntegerPanels; p++) sums[r][p] = multiplyAdd(sums[r][p], k[p], q);
        }
      }
      for (int p = 0; p < kIntegerPanels; p++) {
        Ints weight = load<Ints>(weights + (p * blocks + b) * kLanes);
        for (int r = 0; r < R; r++) product[r][p] += widen(sums[r][p], weight);
      }
    }
    storeScores<R>(unit, row, tile, panel, product, state);
  }

  template <int R>
  void storeScores(const Unit& unit, int row, const uint8_t* tile, int panel, const Ints (&product)[R][kIntegerPanels],
                   RowState& state) const {
    for (int p = 0; p < kIntegerPanels; p++) {
      Floats keyScale = load<Floats>(packed_.lineScales(tile, panel + p));
      for (int r = 0; r < R; r++) {
        Floats score = toFloats(product[r][p]) * keyScale * unit.query.scales[(row + r) * packed_.headBlocks()];
        store(state.scores + (row + r) * kTileKeys + (panel + p) * kLanes, score);
      }
    }
  }

  // Scores of R rows and kBlockPanels panels of keys from blocks with a scale each, which takes a float beside every integer
  // sum. Narrow: products of a block fit narrow sums.
  template <int R, bool Narrow>
  void scoreBlocks(const Unit& unit, int row, const uint8_t* tile, int panel, RowState& state) const {
    int64_t blocks = packed_.headBlocks(), padded = blocks * kBlock, stride = packed_.panelBytes();
    const uint8_t* keys = packed_.keys(tile, panel);
    const float* keyScale = packed_.keyScales(tile, panel);
    const int8_t* query = unit.query.codes + row * padded;
    const float* queryScale = unit.query.scales + row * blocks;
    const int32_t* offset = (Narrow ? unit.query.narrowOffsets : unit.query.offsets) + row * blocks;
    using Products = std::conditional_t<Narrow, Sums, Ints>;
    Floats sum[R][kBlockPanels] = {};
    for (int64_t b = 0; b < blocks; b++) {
      Products product[R][kBlockPanels];
      for (int r = 0; r < R; r++) {
        for (int p = 0; p < kBlockPanels; p++) product[r][p] = reinterpret_cast<Products>(splat(offset[r * blocks + b]));
      }
#pragma GCC unroll 8
      for (int g = 0; g < kGroups; g++) {
        Ints k[kBlockPanels];
        for (int p = 0; p < kBlockPanels; p++) k[p] = load<Ints>(keys + p * stride + b * kBlockBytes + g * kLanes * 4);
        for (int r = 0; r < R; r++) {
          Ints q = splatBytes(query + r * padded + b * kBlock + g * 4);
          for (int p = 0; p < kBlockPanels; p++) {
            if constexpr (Narrow) {
              product[r][p] = multiplyAdd(product[r][p], k[p], q);
            } else {
              product[r][p] = dot4(product[r][p], k[p], q);
            }
          }
        }
      }
      for (int p = 0; p < kBlockPanels; p++) {
        Floats scale = load<Floats>(keyScale + (p * blocks + b) * kLanes);
        for (int r = 0; r < R; r++) {
          Ints total;
          if constexpr (Narrow) {
            total = widen(product[r][p], splat(0x00010001));
          } else {
            total = product[r][p];
          }
          sum[r][p] += toFloats(total) * (scale * queryScale[r * blocks + b]);
        }
      }
    }
    for (int r = 0; r < R; r++) {
      for (int p = 0; p < kBlockPanels; p++) {
        store(state.scores + (row + r) * kTileKeys + (panel + p) * kLanes, sum[r][p]);
      }
    }
  }

  template <int C>
  void weightedSums(const Unit& unit, const Rows& rows, int64_t group, RowState& state) const {
    // In narrow sums, 16 products of E2M1 values are exact, 12 * 60 * 16 < 2^15, and 8 of E2M3 values, 60 * 60 * 8.
    bool half = kNarrowSums && packed_.format().toInteger == 8.f;
    forRowTiles<kIntegerRows>(rows.count, [&](auto size, int row) {
      if (half) {
        channels<size.value, C, kGroups / 2>(unit, row, group, state);
      } else {
        channels<size.value, C, kGroups>(unit, row, group, state);
      }
    });
  }

  // Span: steps of 4 tokens that add up before sums are widened.
  template <int R, int C, int Span>
  void channels(const Unit& unit, int row, int64_t group, RowState& state) const {
    float* out = state.out + row * state.outSize + group * kLanes;
    for (int t = 0; t < unit.pending; t++) {
      const float* weights = probabilityScales(unit, t) + row * kTileBlocks;
      for (int b = 0; b < kTileBlocks; b++) {
        const int8_t* values = packed_.values(unit.tiles[t], b, group);
        const uint8_t* codes = unit.probability + row * kPendingKeys + t * kTileKeys + b * kBlock;
        Ints product[R][C] = {};
#pragma GCC unroll 2
        for (int from = 0; from < kGroups; from += Span) {
          Sums sums[R][C] = {};
#pragma GCC unroll 8
          for (int g = from; g < from + Span; g++) {
            Ints v[C];
            for (int c = 0; c < C; c++) v[c] = load<Ints>(values + c * kBlockBytes + g * kLanes * 4);
            for (int r = 0; r < R; r++) {
              Ints p = splatBytes(codes + r * kPendingKeys + g * 4);
              for (int c = 0; c < C; c++) sums[r][c] = multiplyAdd(sums[r][c], p, v[c]);
            }
          }
          for (int r = 0; r < R; r++) {
            for (int c = 0; c < C; c++) product[r][c] += widen(sums[r][c], splat(0x00010001));
          }
        }
        for (int c = 0; c < C; c++) {
          Floats scale = load<Floats>(packed_.valueScales(unit.tiles[t], b, group + c));
          for (int r = 0; r < R; r++) {
            float* at = out + r * state.outSize + c * kLanes;
            store(at, load<Floats>(at) + toFloats(product[r][c]) * (scale * weights[r * kTileBlocks + b]));
          }
        }
      }
    }
  }

  const Problem& problem_;
  ElementFormat query_;
  OperandTiles packed_;
  Cache cached_;
  ElementFormat probability_;
  int64_t tileCount_;
  uint8_t* chunk_ = nullptr;
};
