// Attention with products of floats: of the operands as they are (f32), or of E4M3 operands in MX blocks (mxfp8), whose
// values are floats with few digits. A softmax of its own for each (online_softmax.h, e4m3_softmax.h).

template <typename Softmax>
class FloatEngine {
 public:
  struct Unit {
    float* query;  // [kRowBlock][headSize], scaled to log2 units
    float* key;    // the keys of a tile of MX blocks, [panel of kLanes keys][channel][key]
    // The values of a tile that is ragged in memory, [kTileKeys][padded value head size], or of MX blocks, [group of kLanes
    // channels][kTileKeys][channel].
    float* value;
    int pending;  // tiles whose weights wait: one at most
    int64_t firstKey;
  };

  // From this many rows on, keys are transposed once (lanes are keys) and values put into panels; below, each score is a
  // dot product along the head (lanes are channels) and both are read where they are.
  static constexpr int64_t kTransposeRows = 8;

  FloatEngine(const Problem& problem, Arena& arena)
      : problem_(problem),
        cache_(problem) {
    int64_t rows = problem.heads / problem.kvHeads * problem.queryLength;
    // A cache is in that order already.
    transposed_ = !problem.cache && (Softmax::kQuantised || rows >= kTransposeRows);
    panels_ = ceilDivide(problem.keyLength, kTileKeys) * kTileVectors;
    int64_t heads = problem.batch * problem.kvHeads;
    if (transposed_) {
      keys_ = arena.take<float>(heads * panels_ * problem.headSize * kLanes);
      values_ = arena.take<float>(heads * panels_ * kLanes * paddedValue());
    }
  }

  // New tokens go to the cache, if there is one. Then, for many rows, keys as [panel of kLanes keys][channel][kLanes] and
  // values as [tile][group of kLanes channels][kTileKeys][kLanes], zeros past the last.
  void pack(const Parallel& parallel) {
    if (problem_.cache) cache_.append(parallel);
    if (!transposed_) return;
    int64_t tiles = panels_ / kTileVectors;
    parallel.each(problem_.batch * problem_.kvHeads * tiles, [&](size_t index) {
      int64_t head = index / tiles;
      for (int64_t p = index % tiles * kTileVectors, end = p + kTileVectors; p < end; p++) {
        int64_t keys = std::clamp<int64_t>(problem_.keyLength - p * kLanes, 0, kLanes);
        float* to = keys_ + (head * panels_ + p) * problem_.headSize * kLanes;
        if constexpr (Softmax::kQuantised) {
          packQuantisedKeys(keyRows(head, p * kLanes), keys, to);
        } else {
          packKeys(keyRows(head, p * kLanes), keys, to);
        }
      }
      packValues(head, index % tiles);
    });
  }

  Unit begin(const Rows& rows, Arena& arena) const {
    Unit unit{};
    unit.query = arena.take<float>(kRowBlock * problem_.headSize);
    if (problem_.cache) unit.key = arena.take<float>(kTileKeys * problem_.headSize);
    unit.value = arena.take<float>(kTileKeys * paddedValue());
    if (rows.count == 0) return unit;
    int64_t group = problem_.heads / problem_.kvHeads;
    int64_t firstRow = (rows.batch * problem_.kvHeads + rows.kvHead) * group * problem_.queryLength + rows.first;
    const float* query = problem_.query + firstRow * problem_.headSize;
    auto factor = static_cast<float>(problem_.scale * 1.4426950408889634);  // scale * log2(e)
    for (int row = 0; row < rows.count; row++) {
      const float* from = query + row * problem_.headSize;
      float* to = unit.query + row * problem_.headSize;
      if constexpr (Softmax::kQuantised) {
        quantisedRow(from, factor, to);
      } else if (cache_.rotated()) {
        alignas(64) float x[kLargestHeadSize];
        prepareRow(from, problem_.headSize, factor, x);
        std::memcpy(to, x, problem_.headSize * sizeof(float));
      } else {
        for (int64_t c = 0; c < problem_.headSize; c++) to[c] = from[c] * factor;
      }
    }
    return unit;
  }

  void scores(Unit& unit, const Rows& rows, int64_t firstKey, RowState& state) const {
    int64_t head = rows.batch * problem_.kvHeads + rows.kvHead;
    if (problem_.cache) {
      const uint8_t* tile = cache_.tile(head, firstKey / kTileKeys);
      cache_.with([&](const auto& tiles) { products(unit, rows, keysOf(tiles, tile, unit), state); });
    } else if (transposed_) {
      products(unit, rows, keys_ + (head * panels_ + firstKey / kLanes) * problem_.headSize * kLanes, state);
    } else {
      int count = static_cast<int>(std::min<int64_t>(kTileKeys, problem_.keyLength - firstKey));
      for (int row = 0; row < rows.count; row++) {
        dotProducts(unit.query + row * problem_.headSize, keyRows(head, firstKey), count,
                    state.scores + row * kTileKeys);
      }
    }
  }

  void softmax(Unit& unit, const Rows& rows, int64_t firstKey, RowState& state) const {
    for (int row = 0; row < rows.count; row++) Softmax::row(row, state);
    unit.pending = 1;
    unit.firstKey = firstKey;
  }

  static bool full(const Unit&) { return true; }

  void accumulate(Unit& unit, const Rows& rows, RowState& state) const {
    int64_t firstKey = unit.firstKey;
    unit.pending = 0;
    int64_t size = problem_.valueHeadSize, padded = paddedValue();
    int keys = static_cast<int>(std::min<int64_t>(kTileKeys, problem_.keyLength - firstKey));
    int64_t head = rows.batch * problem_.kvHeads + rows.kvHead;
    if (problem_.cache) {
      const uint8_t* tile = cache_.tile(head, firstKey / kTileKeys);
      cache_.with([&](const auto& tiles) {
        weightedSums(rows, keys, grouped(valuesOf(tiles, tile, unit)), state);
      });
    } else if (transposed_) {
      weightedSums(rows, keys, grouped(values_ + (head * panels_ * kLanes + firstKey) * padded), state);
    } else {
      const float* from = problem_.value + (head * problem_.keyLength + firstKey) * size;
      if (padded != size) {
        for (int t = 0; t < keys; t++) {
          std::memcpy(unit.value + t * padded, from + t * size, size * sizeof(float));
          std::memset(unit.value + t * padded + size, 0, (padded - size) * sizeof(float));
        }
        from = unit.value;
      }
      weightedSums(rows, keys, ValueTile<float>{from, padded, kLanes}, state);
    }
  }

 protected:
  int64_t paddedValue() const { return ceilDivide(problem_.valueHeadSize, kLanes) * kLanes; }

  // Values of a tile: those of kLanes channels are `stride` apart from token to token, `groupStride` from one group to the
  // next.
  template <typename Number>
  struct ValueTile {
    const Number* values;
    int64_t stride;
    int64_t groupStride;
  };

  template <typename Number>
  static ValueTile<Number> grouped(const Number* values) {
    return {values, kLanes, kTileKeys * kLanes};
  }

  // Plain tiles are read where they are, blocks as floats.
  template <typename Number>
  static const Number* keysOf(const PlainTiles<Number>& tiles, const uint8_t* tile, const Unit&) {
    return tiles.keys(tile);
  }
  static const float* keysOf(const CacheTiles& tiles, const uint8_t* tile, const Unit& unit) {
    tiles.readKeys(tile, unit.key);
    return unit.key;
  }
  template <typename Number>
  static const Number* valuesOf(const PlainTiles<Number>& tiles, const uint8_t* tile, const Unit&) {
    return tiles.values(tile);
  }
  static const float* valuesOf(const CacheTiles& tiles, const uint8_t* tile, const Unit& unit) {
    tiles.readValues(tile, unit.value);
    return unit.value;
  }

  // Keys from a token on.
  const float* keyRows(int64_t head, int64_t token) const {
    return problem_.key + (head * problem_.keyLength + token) * problem_.headSize;
  }

  void packValues(int64_t head, int64_t tile) {
    int64_t size = problem_.valueHeadSize, padded = paddedValue(), first = tile * kTileKeys;
    int64_t count = std::min<int64_t>(kTileKeys, problem_.keyLength - first);
    float* to = values_ + (head * panels_ * kLanes + first) * padded;
    const float* from = problem_.value + (head * problem_.keyLength + first) * size;
    for (int64_t t = 0; t < kTileKeys; t++) {
      for (int64_t g = 0; g < padded / kLanes; g++) {
        Floats x = loadFirst(from + t * size + g * kLanes, t < count ? size - g * kLanes : 0);
        store(to + (g * kTileKeys + t) * kLanes, x);
      }
    }
    if constexpr (Softmax::kQuantised) {
      for (int64_t block = 0; block < padded / kLanes * kTileBlocks; block++) quantiseValues(to + block * kBlock * kLanes);
    }
  }

  // kLanes keys, of which `count` exist, to [channel][key].
  void packKeys(const float* from, int64_t count, float* to) const {
    for (int64_t c = 0; c < problem_.headSize; c++) {
      for (int64_t j = 0; j < count; j++) to[c * kLanes + j] = from[j * problem_.headSize + c];
      for (int64_t j = count; j < kLanes; j++) to[c * kLanes + j] = 0;
    }
  }

  void packQuantisedKeys(const float* from, int64_t count, float* to) const {
    std::memset(to, 0, problem_.headSize * kLanes * sizeof(float));
    for (int64_t j = 0; j < count; j++) {
      float row[kLargestHeadSize];
      quantisedRow(from + j * problem_.headSize, 1.f, row);
      for (int64_t c = 0; c < problem_.headSize; c++) to[c * kLanes + j] = row[c];
    }
  }

  // A query or key times a factor, rotated, and rounded to E4M3 blocks.
  void quantisedRow(const float* from, float factor, float* to) const {
    alignas(64) float x[kLargestHeadSize];
    int64_t size = problem_.headSize;
    prepareRow(from, size, factor, x);
    for (int64_t c = 0; c < size; c += kBlock) {
      Floats largest = largestOfBlock(x + c);
      Ints biased = scaleExponent(largest, kE4m3Even2);
      Floats inverse = inverseScaleOf(biased), scale = blockScale(largest, biased);
      for (int v = 0; v < kBlock; v += kLanes) {
        store(x + c + v, elements(load<Floats>(x + c + v) * inverse, kE4m3Even2) * scale);
      }
    }
    std::memcpy(to, x, size * sizeof(float));
  }

  // 32 tokens of kLanes channels, rounded to E4M3 blocks in place.
  static void quantiseValues(float* x) {
    Floats largest{};
    for (int t = 0; t < kBlock; t++) largest = largerMagnitude(largest, load<Floats>(x + t * kLanes));
    Ints biased = scaleExponent(largest, kE4m3Ceil);
    Floats inverse = inverseScaleOf(biased), scale = blockScale(largest, biased);
    for (int t = 0; t < kBlock; t++) {
      store(x + t * kLanes, elements(load<Floats>(x + t * kLanes) * inverse, kE4m3Ceil) * scale);
    }
  }

  void dotProducts(const float* query, const float* keys, int count, float* scores) const {
    int64_t size = problem_.headSize;
    int64_t whole = size / kLanes * kLanes;
    for (int j = 0; j < count; j++) {
      const float* key = keys + j * size;
      Floats sum{};
      for (int64_t c = 0; c < whole; c += kLanes) sum += load<Floats>(query + c) * load<Floats>(key + c);
      float s = sumOfLanes(sum)[0];
      for (int64_t c = whole; c < size; c++) s += query[c] * key[c];
      scores[j] = s;
    }
    // Keys past the end are masked later; their scores must only be numbers.
    for (int j = count; j < kTileKeys; j++) scores[j] = 0;
  }

  template <typename Number>
  void products(const Unit& unit, const Rows& rows, const Number* keys, RowState& state) const {
    // A pair of panels stays in the first level cache for all rows.
    for (int v = 0; v < kTileVectors; v += kFloatPanels) {
      forRowTiles<kFloatRows>(rows.count, [&](auto size, int row) { tile<size.value>(unit, row, keys, v, state); });
    }
  }

  // Scores of R rows and kFloatPanels panels of keys, from panel v on.
  template <int R, typename Number>
  void tile(const Unit& unit, int row, const Number* panel, int v, RowState& state) const {
    int64_t size = problem_.headSize;
    const float* query = unit.query + row * size;
    Floats sum[R][kFloatPanels] = {};
    const Number* keys = panel + v * size * kLanes;
#pragma GCC unroll 4
    for (int64_t c = 0; c < size; c++) {
      Floats k[kFloatPanels];
      for (int p = 0; p < kFloatPanels; p++) k[p] = loadNumbers(keys + (p * size + c) * kLanes);
      for (int r = 0; r < R; r++) {
        Floats q = splat(query[r * size + c]);
        for (int p = 0; p < kFloatPanels; p++) sum[r][p] += q * k[p];
      }
    }
    for (int r = 0; r < R; r++) {
      for (int p = 0; p < kFloatPanels; p++) {
        store(state.scores + (row + r) * kTileKeys + (v + p) * kLanes, sum[r][p]);
      }
    }
  }

  template <typename Number>
  void weightedSums(const Rows& rows, int keys, const ValueTile<Number>& tile, RowState& state) const {
    int64_t groups = paddedValue() / kLanes, g = 0;
    for (; g + kFloatPanels <= groups; g += kFloatPanels) groupSums<kFloatPanels>(rows, keys, tile, g, state);
    for (; g < groups; g++) groupSums<1>(rows, keys, tile, g, state);
  }

  template <int C, typename Number>
  void groupSums(const Rows& rows, int keys, const ValueTile<Number>& tile, int64_t group, RowState& state) const {
    forRowTiles<kFloatRows>(rows.count,
                            [&](auto size, int row) { channels<size.value, C>(row, keys, tile, group, state); });
  }

  template <int R, int C, typename Number>
  void channels(int row, int keys, const ValueTile<Number>& tile, int64_t group, RowState& state) const {
    Floats sum[R][C];
    float* out = state.out + row * state.outSize + group * kLanes;
    for (int r = 0; r < R; r++) {
      for (int c = 0; c < C; c++) sum[r][c] = load<Floats>(out + r * state.outSize + c * kLanes);
    }
    const Number* value = tile.values + group * tile.groupStride;
    const float* p = state.scores + row * kTileKeys;
    int64_t stride = tile.stride, groupStride = tile.groupStride;
#pragma GCC unroll 4
    for (int t = 0; t < keys; t++) {
      Floats v[C];
      for (int c = 0; c < C; c++) v[c] = loadNumbers(value + t * stride + c * groupStride);
      for (int r = 0; r < R; r++) {
        Floats weight = splat(p[r * kTileKeys + t]);
        for (int c = 0; c < C; c++) sum[r][c] += weight * v[c];
      }
    }
    for (int r = 0; r < R; r++) {
      for (int c = 0; c < C; c++) store(out + r * state.outSize + c * kLanes, sum[r][c]);
    }
  }

  const Problem& problem_;
  Cache cache_;
  bool transposed_;
  int64_t panels_;
  float* keys_ = nullptr;
  float* values_ = nullptr;
};
