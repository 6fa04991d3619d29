// mxfp8 with products of bfloat16, of which an instruction multiplies two pairs and adds them to a float. E4M3 elements
// times a power of two, and E4M3 weights, are bfloat16 numbers, so nothing is lost; scales below 2^-126 are taken as zero.
//
// Everything is as in FloatEngine, but for pairs in the place of floats: of two channels of a key or query, and of two
// tokens of a value or weight. They stand where the first of the floats stood, so that a panel begins where it did.

class Bf16Engine : public FloatEngine<E4m3Softmax> {
 public:
  using Base = FloatEngine<E4m3Softmax>;
  using Unit = Base::Unit;
  using Base::Base;

  void pack(const Parallel& parallel) {
    Base::pack(parallel);
    if (problem_.cache) return;
    int64_t tiles = panels_ / kTileVectors;
    parallel.each(problem_.batch * problem_.kvHeads * tiles, [&](size_t tile) {
      pairKeys(keys_ + tile * kTileKeys * problem_.headSize);
      pairValues(values_ + tile * kTileKeys * paddedValue());
    });
  }

  Unit begin(const Rows& rows, Arena& arena) const {
    Unit unit = Base::begin(rows, arena);
    for (int row = 0; row < rows.count; row++) {
      float* query = unit.query + row * problem_.headSize;
      for (int64_t c = 0; c < problem_.headSize; c += 2) {
        query[c / 2] = pairOf(query[c], c + 1 < problem_.headSize ? query[c + 1] : 0.f);
      }
    }
    return unit;
  }

  void scores(Unit& unit, const Rows& rows, int64_t firstKey, RowState& state) const {
    const float* keys = keyPairs(unit, rows, firstKey);
    for (int v = 0; v < kTileVectors; v += kFloatPanels) {
      forRowTiles<kFloatRows>(rows.count, [&](auto size, int row) { tile<size.value>(unit, row, keys, v, state); });
    }
  }

  void softmax(Unit& unit, const Rows& rows, int64_t firstKey, RowState& state) const {
    Base::softmax(unit, rows, firstKey, state);
    for (int row = 0; row < rows.count; row++) {
      float* weights = state.scores + row * kTileKeys;
      for (int t = 0; t < kTileKeys; t += 2) weights[t / 2] = pairOf(weights[t], weights[t + 1]);
    }
  }

  void accumulate(Unit& unit, const Rows& rows, RowState& state) const {
    int64_t groups = paddedValue() / kLanes, g = 0;
    const float* values = valuePairs(unit, rows);
    unit.pending = 0;
    for (; g + kFloatPanels <= groups; g += kFloatPanels) groupSums<kFloatPanels>(rows, values, g, state);
    for (; g < groups; g++) groupSums<1>(rows, values, g, state);
  }

 protected:
  // The keys of a tile.
  const float* keyPairs(const Unit& unit, const Rows& rows, int64_t firstKey) const {
    int64_t head = rows.batch * problem_.kvHeads + rows.kvHead;
    if (!problem_.cache) return keys_ + (head * panels_ + firstKey / kLanes) * problem_.headSize * kLanes;
    cache_.blocks().readKeys(cache_.tile(head, firstKey / kTileKeys), unit.key);
    pairKeys(unit.key);
    return unit.key;
  }

  // The values of the tile whose weights wait.
  const float* valuePairs(const Unit& unit, const Rows& rows) const {
    int64_t head = rows.batch * problem_.kvHeads + rows.kvHead;
    if (!problem_.cache) return values_ + (head * panels_ * kLanes + unit.firstKey) * paddedValue();
    cache_.blocks().readValues(cache_.tile(head, unit.firstKey / kTileKeys), unit.value);
    pairValues(unit.value);
    return unit.value;
  }

 private:
  // The upper halves of two floats, the first one low.
  MXATTN_INLINE Ints pairs(Floats first, Floats second) {
    return ((bits(first) >> 16) & 0xffff) | (bits(second) & static_cast<int32_t>(0xffff0000));
  }

  MXATTN_INLINE float pairOf(float first, float second) {
    uint32_t a, b;
    std::memcpy(&a, &first, 4);
    std::memcpy(&b, &second, 4);
    uint32_t pair = a >> 16 | (b & 0xffff0000);
    float result;
    std::memcpy(&result, &pair, 4);
    return result;
  }

  // `count` vectors, two by two, in place.
  static void pairVectors(float* x, int64_t count) {
    for (int64_t i = 0; i < count; i += 2) {
      Floats second = i + 1 < count ? load<Floats>(x + (i + 1) * kLanes) : Floats{};
      store(x + i / 2 * kLanes, pairs(load<Floats>(x + i * kLanes), second));
    }
  }

  void pairKeys(float* tile) const {
    for (int v = 0; v < kTileVectors; v++) pairVectors(tile + v * problem_.headSize * kLanes, problem_.headSize);
  }

  void pairValues(float* tile) const {
    for (int64_t g = 0; g < paddedValue() / kLanes; g++) pairVectors(tile + g * kTileKeys * kLanes, kTileKeys);
  }

  template <int R>
  void tile(const Unit& unit, int row, const float* panel, int v, RowState& state) const {
    int64_t size = problem_.headSize, count = ceilDivide(size, 2);
    const float* query = unit.query + row * size;
    const float* keys = panel + v * size * kLanes;
    Floats sum[R][kFloatPanels] = {};
#pragma GCC unroll 4
    for (int64_t c = 0; c < count; c++) {
      Ints k[kFloatPanels];
      for (int p = 0; p < kFloatPanels; p++) k[p] = load<Ints>(keys + (p * size + c) * kLanes);
      for (int r = 0; r < R; r++) {
        Ints q = splatBytes(query + r * size + c);
        for (int p = 0; p < kFloatPanels; p++) sum[r][p] = addPairs(sum[r][p], q, k[p]);
      }
    }
    for (int r = 0; r < R; r++) {
      for (int p = 0; p < kFloatPanels; p++) {
        store(state.scores + (row + r) * kTileKeys + (v + p) * kLanes, sum[r][p]);
      }
    }
  }

  template <int C>
  void groupSums(const Rows& rows, const float* values, int64_t group, RowState& state) const {
    forRowTiles<kFloatRows>(rows.count, [&](auto size, int row) { channels<size.value, C>(row, values, group, state); });
  }

  template <int R, int C>
  void channels(int row, const float* values, int64_t group, RowState& state) const {
    float* out = state.out + row * state.outSize + group * kLanes;
    const float* value = values + group * kTileKeys * kLanes;
    const float* weights = state.scores + row * kTileKeys;
    Floats sum[R][C];
    for (int r = 0; r < R; r++) {
      for (int c = 0; c < C; c++) sum[r][c] = load<Floats>(out + r * state.outSize + c * kLanes);
    }
#pragma GCC unroll 4
    for (int t = 0; t < kTileKeys / 2; t++) {
      Ints v[C];
      for (int c = 0; c < C; c++) v[c] = load<Ints>(value + (c * kTileKeys + t) * kLanes);
      for (int r = 0; r < R; r++) {
        Ints weight = splatBytes(weights + r * kTileKeys + t);
        for (int c = 0; c < C; c++) sum[r][c] = addPairs(sum[r][c], weight, v[c]);
      }
    }
    for (int r = 0; r < R; r++) {
      for (int c = 0; c < C; c++) store(out + r * state.outSize + c * kLanes, sum[r][c]);
    }
  }
};
