// The block-scaled engine on AMX. An MX block is 32 deep: of a key panel it is 8 rows of 16 keys by 4 channels, of a
// value group 8 rows of 16 channels by 4 tokens. That is the layout of a tile's second operand, so packed data are
// loaded as they are. Products of a block come out as 16 by 16 integers in memory, where vectors apply the scales.

// What ldtilecfg reads. Tiles 0 to 3: sums, 16 rows of 16 numbers; 4 and 5: first operands, 16 rows; 6 and 7: second
// operands, 16 columns by 4 bytes. Operands are 64 bytes deep, or 32: one MX block of bytes.
struct alignas(64) TileShapes {
  uint8_t palette = 1;
  uint8_t startRow = 0;
  uint8_t reserved[14] = {};
  uint16_t rowBytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};

  static constexpr TileShapes deep(uint8_t bytes) {
    TileShapes shapes;
    shapes.rowBytes[4] = shapes.rowBytes[5] = bytes;
    shapes.rows[6] = shapes.rows[7] = bytes / 4;
    return shapes;
  }
};

// The shapes are set on this thread while it lives.
class TileConfiguration {
 public:
  ~TileConfiguration() {
    if (deep_) _tile_release();
  }
  TileConfiguration() = default;
  TileConfiguration(const TileConfiguration&) = delete;
  TileConfiguration& operator=(const TileConfiguration&) = delete;

  // Bytes of the operands' depth: 32 or 64.
  void set(uint8_t deep) {
    if (deep == deep_) return;
    static constexpr TileShapes half = TileShapes::deep(32), whole = TileShapes::deep(64);
    _tile_loadconfig(deep == 32 ? &half : &whole);
    deep_ = deep;
  }

 private:
  uint8_t deep_ = 0;
};

// Stores before it are done before tiles are loaded: the intrinsics do not say that they read memory.
MXATTN_INLINE void storesBeforeTiles() { __asm__ volatile("" ::: "memory"); }

class MatrixTileEngine : public BlockScaledEngine {
 public:
  // Two by two tiles share their operands.
  static constexpr int kPairRows = 32;
  static constexpr int kPairColumns = 32;
  static_assert(kRowBlock == 3 * kPairRows);

  struct Unit : BlockScaledEngine::Unit {
    // [2][blocks][32 rows][32 columns]. While vectors scale the products of one, matrices compute the next: their results
    // are late, and no processor looks ahead as far as what follows.
    int32_t* products[2];
    bool aligned[kRowBlock / kPairRows];  // every row of a pair of tiles
    TileConfiguration configuration;
  };

  using BlockScaledEngine::BlockScaledEngine;

  Unit begin(const Rows& rows, Arena& arena) const {
    auto base = BlockScaledEngine::begin(rows, arena);
    int64_t count = std::max<int64_t>(packed_.headBlocks(), kTileBlocks) * kPairRows * kPairColumns;
    auto* first = arena.take<int32_t>(count);
    auto* second = arena.take<int32_t>(count);
    bool aligned[kRowBlock / kPairRows] = {true, true, true};
    for (int row = 0; row < rows.count; row++) aligned[row / kPairRows] &= base.query.aligned[row];
    return Unit{base, {first, second}, {aligned[0], aligned[1], aligned[2]}, {}};
  }

  void scores(Unit& unit, const Rows& rows, int64_t firstKey, RowState& state) const {
    const uint8_t* tile = takeTile(unit, rows, firstKey / kTileKeys);
    int64_t blocks = packed_.headBlocks(), padded = blocks * kBlock;
    bool aligned[kRowBlock / kPairRows], all = true;
    for (int pair = 0; pair < kRowBlock / kPairRows; pair++) {
      aligned[pair] = unit.aligned[pair] && packed_.facts(tile).aligned;
      all &= aligned[pair];
    }
    // Blocks that share their scales are multiplied two at a time.
    int64_t step = all && blocks % 2 == 0 ? 2 : 1;
    unit.configuration.set(static_cast<uint8_t>(step * kBlock));
    storesBeforeTiles();
    constexpr int kPanels = kTileVectors / 2;
    auto multiply = [&](int item, int32_t* products) {
      int row = item / kPanels * kPairRows, panel = item % kPanels * 2, count = std::min(kPairRows, rows.count - row);
      const int8_t* query = unit.query.codes + row * padded;
      const uint8_t* keys = packed_.keys(tile, panel);
      if (aligned[row / kPairRows]) {
        multiplySigned(query, padded, keys, packed_.panelBytes(), blocks / step, step, count, products);
        return;
      }
      for (int64_t b = 0; b < blocks; b++) {
        multiplySigned(query + b * kBlock, padded, keys + b * kBlockBytes, packed_.panelBytes(), 1, 1, count,
                       products + b * kPairRows * kPairColumns);
      }
    };
    auto scale = [&](int item, const int32_t* products) {
      int row = item / kPanels * kPairRows, panel = item % kPanels * 2, count = std::min(kPairRows, rows.count - row);
      const float* queryScale = unit.query.scales + row * blocks;
      float* scores = state.scores + row * kTileKeys + panel * kLanes;
      if (aligned[row / kPairRows]) {
        scaleProducts<1>(products, count, 1, packed_.lineScales(tile, panel), queryScale, blocks, scores);
      } else {
        scaleProducts<0>(products, count, blocks, packed_.keyScales(tile, panel), queryScale, blocks, scores);
      }
    };
    inTurn(unit, pairsOf(rows) * kPanels, multiply, scale);
  }

  void accumulate(Unit& unit, const Rows& rows, RowState& state) const {
    int groupPairs = static_cast<int>(ceilDivide(packed_.channelGroups(), 2)), rowPairs = pairsOf(rows);
    unit.configuration.set(kBlock);
    storesBeforeTiles();
    // All tiles that wait, before the next rows and channels: their output stays in the first level cache.
    auto multiply = [&](int item, int32_t* products) {
      int t = item % unit.pending, row = item / unit.pending / groupPairs * kPairRows;
      int64_t group = item / unit.pending % groupPairs * 2;
      const uint8_t* codes = unit.probability + row * kPendingKeys + t * kTileKeys;
      for (int b = 0; b < kTileBlocks; b++) {
        multiplyUnsigned(codes + b * kBlock, packed_.values(unit.tiles[t], b, group), groupsOf(group),
                         std::min(kPairRows, rows.count - row), products + b * kPairRows * kPairColumns);
      }
    };
    auto scale = [&](int item, const int32_t* products) {
      int t = item % unit.pending, row = item / unit.pending / groupPairs * kPairRows;
      int64_t group = item / unit.pending % groupPairs * 2;
      int count = std::min(kPairRows, rows.count - row), groups = groupsOf(group);
      const float* weights = probabilityScales(unit, t) + row * kTileBlocks;
      for (int g = 0; g < groups; g++) {
        addScaled(products + g * kLanes, count, packed_.valueScales(unit.tiles[t], 0, group + g),
                  packed_.valueScales(unit.tiles[t], 1, group + g), weights,
                  state.out + row * state.outSize + (group + g) * kLanes, state.outSize);
      }
    };
    inTurn(unit, unit.pending * rowPairs * groupPairs, multiply, scale);
    unit.pending = 0;
  }

 private:
  static int pairsOf(const Rows& rows) { return (rows.count + kPairRows - 1) / kPairRows; }
  int groupsOf(int64_t group) const { return static_cast<int>(std::min<int64_t>(2, packed_.channelGroups() - group)); }

  // scale(i, products) after multiply(i, products) for i in [0, count), the next product ahead of each scaling.
  template <typename Multiply, typename Scale>
  static void inTurn(const Unit& unit, int count, const Multiply& multiply, const Scale& scale) {
    multiply(0, unit.products[0]);
    for (int i = 0; i < count; i++) {
      if (i + 1 < count) multiply(i + 1, unit.products[(i + 1) % 2]);
      scale(i, unit.products[i % 2]);
    }
  }

  // Adds up the products of `blocks` blocks, each with its scales. Blocks: their number where it is known, so that the
  // scales of keys stay in registers; else 0.
  template <int Blocks>
  static void scaleProducts(const int32_t* products, int count, int64_t blocks, const float* keyScale,
                            const float* queryScale, int64_t queryStride, float* scores) {
    Floats keys[2][Blocks ? Blocks : 1];
    for (int p = 0; p < 2; p++) {
      for (int b = 0; b < Blocks; b++) keys[p][b] = load<Floats>(keyScale + (p * Blocks + b) * kLanes);
    }
    for (int r = 0; r < count; r++) {
      Floats sum[2] = {};
#pragma GCC unroll 4
      for (int64_t b = 0; b < (Blocks ? Blocks : blocks); b++) {
        const int32_t* product = products + (b * kPairRows + r) * kPairColumns;
        for (int p = 0; p < 2; p++) {
          Floats key = Blocks ? keys[p][Blocks ? b : 0] : load<Floats>(keyScale + (p * blocks + b) * kLanes);
          sum[p] += toFloats(load<Ints>(product + p * kLanes)) * key * queryScale[r * queryStride + b];
        }
      }
      for (int p = 0; p < 2; p++) store(scores + r * kTileKeys + p * kLanes, sum[p]);
    }
  }

  // Adds to rows of kLanes outputs the products of both blocks of a tile, times the scales of values and of weights.
  static void addScaled(const int32_t* __restrict products, int count, const float* firstScales,
                        const float* secondScales, const float* __restrict weights, float* __restrict out,
                        int64_t outStride) {
    Floats first = load<Floats>(firstScales), second = load<Floats>(secondScales);
    const int32_t* more = products + kPairRows * kPairColumns;
    for (int r = 0; r < count; r++) {
      Floats sum = load<Floats>(out + r * outStride);
      sum += toFloats(load<Ints>(products + r * kPairColumns)) * (first * weights[r * kTileBlocks]);
      sum += toFloats(load<Ints>(more + r * kPairColumns)) * (second * weights[r * kTileBlocks + 1]);
      store(out + r * outStride, sum);
    }
  }

  // Rows past the count are computed, too, from whatever is there, but not used. In `steps` steps of `depth` blocks each.
  static void multiplySigned(const int8_t* a, int64_t stride, const uint8_t* b, int64_t panelBytes, int64_t steps,
                             int64_t depth, int count, int32_t* products) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t i = 0; i < steps; i++, a += depth * kBlock, b += depth * kBlockBytes) {
      _tile_loadd(6, b, 64);
      _tile_loadd(7, b + panelBytes, 64);
      _tile_loadd(4, a, stride);
      _tile_dpbssd(0, 4, 6);
      _tile_dpbssd(1, 4, 7);
      if (count > 16) {
        _tile_loadd(5, a + 16 * stride, stride);
        _tile_dpbssd(2, 5, 6);
        _tile_dpbssd(3, 5, 7);
      }
    }
    storeSums(products, 2, count);
  }

  static void multiplyUnsigned(const uint8_t* a, const int8_t* b, int groups, int count, int32_t* products) {
    _tile_loadd(6, b, 64);
    _tile_loadd(4, a, kPendingKeys);
    _tile_zero(0);
    _tile_dpbusd(0, 4, 6);
    if (groups == 2) {
      _tile_loadd(7, b + kBlockBytes, 64);
      _tile_zero(1);
      _tile_dpbusd(1, 4, 7);
    }
    if (count > 16) {
      _tile_loadd(5, a + 16 * kPendingKeys, kPendingKeys);
      _tile_zero(2);
      _tile_dpbusd(2, 5, 6);
      if (groups == 2) {
        _tile_zero(3);
        _tile_dpbusd(3, 5, 7);
      }
    }
    storeSums(products, groups, count);
  }

  static void storeSums(int32_t* products, int columns, int count) {
    constexpr int64_t kStride = kPairColumns * sizeof(int32_t);
    _tile_stored(0, products, kStride);
    if (columns == 2) _tile_stored(1, products + 16, kStride);
    if (count > 16) {
      _tile_stored(2, products + 16 * kPairColumns, kStride);
      if (columns == 2) _tile_stored(3, products + 16 * kPairColumns + 16, kStride);
    }
  }
};
