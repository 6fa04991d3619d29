// The block-scaled engine on AMX. An MX block is 32 deep: of a key panel it is 8 rows of 16 keys by 4 channels, of a
// value group 8 rows of 16 channels by 4 tokens. That is the layout of a tile's second operand, so packed data are
// loaded as they are. Products of a block come out as 16 by 16 integers in memory, where vectors apply the scales.

// What ldtilecfg reads. Tiles 0 to 3: sums, 16 rows of 16 integers; 4 and 5: first operands, 16 rows of one block;
// 6 and 7: second operands, 8 rows of 16 columns by 4.
struct alignas(64) TileShapes {
  uint8_t palette = 1;
  uint8_t startRow = 0;
  uint8_t reserved[14] = {};
  uint16_t rowBytes[16] = {64, 64, 64, 64, 32, 32, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 8, 8};
};

// The shapes are set on this thread while it lives.
class TileConfiguration {
 public:
  TileConfiguration() {
    static constexpr TileShapes shapes;
    _tile_loadconfig(&shapes);
  }
  ~TileConfiguration() { _tile_release(); }
  TileConfiguration(const TileConfiguration&) = delete;
  TileConfiguration& operator=(const TileConfiguration&) = delete;
};

// Stores before it are done before tiles are loaded: the intrinsics do not say that they read memory.
MXATTN_INLINE void storesBeforeTiles() { __asm__ volatile("" ::: "memory"); }

class MatrixTileEngine : public BlockScaledEngine {
 public:
  struct Unit : BlockScaledEngine::Unit {
    int32_t* products;  // [blocks][32 rows][32 columns]
    TileConfiguration configuration;
  };

  using BlockScaledEngine::BlockScaledEngine;

  Unit begin(const Rows& rows, Arena& arena) const {
    auto base = BlockScaledEngine::begin(rows, arena);
    int64_t blocks = std::max<int64_t>(packed_.headBlocks(), kTileBlocks);
    return Unit{base, arena.take<int32_t>(blocks * kPairRows * kPairColumns), {}};
  }

  void scores(Unit& unit, const Rows& rows, int64_t firstKey, RowState& state) const {
    const uint8_t* tile = takeTile(unit, rows, firstKey / kTileKeys);
    int64_t blocks = packed_.headBlocks(), padded = blocks * kBlock;
    for (int row = 0; row < rows.count; row += kPairRows) {
      int count = std::min(kPairRows, rows.count - row);
      bool aligned = packed_.facts(tile).aligned;
      for (int r = 0; r < count; r++) aligned &= unit.query.aligned[row + r];
      const int8_t* query = unit.query.codes + row * padded;
      const float* queryScale = unit.query.scales + row * blocks;
      for (int panel = 0; panel < kTileVectors; panel += 2) {
        const uint8_t* keys = packed_.keys(tile, panel);
        float* scores = state.scores + row * kTileKeys + panel * kLanes;
        if (aligned) {
          multiplySigned(query, padded, keys, packed_.panelBytes(), blocks, count, unit.products);
          scaleProducts<1>(unit.products, count, 1, packed_.lineScales(tile, panel), queryScale, blocks, scores);
          continue;
        }
        for (int64_t b = 0; b < blocks; b++) {
          multiplySigned(query + b * kBlock, padded, keys + b * kBlockBytes, packed_.panelBytes(), 1, count,
                         unit.products + b * kPairRows * kPairColumns);
        }
        scaleProducts<0>(unit.products, count, blocks, packed_.keyScales(tile, panel), queryScale, blocks, scores);
      }
    }
  }

  void accumulate(Unit& unit, const Rows& rows, RowState& state) const {
    int64_t channelGroups = packed_.channelGroups();
    for (int t = 0; t < unit.pending; t++) {
      const uint8_t* tile = unit.tiles[t];
      for (int row = 0; row < rows.count; row += kPairRows) {
        int count = std::min(kPairRows, rows.count - row);
        const uint8_t* codes = unit.probability + row * kPendingKeys + t * kTileKeys;
        for (int64_t group = 0; group < channelGroups; group += 2) {
          int groups = static_cast<int>(std::min<int64_t>(2, channelGroups - group));
          for (int b = 0; b < kTileBlocks; b++) {
            multiplyUnsigned(codes + b * kBlock, packed_.values(tile, b, group), groups, count,
                             unit.products + b * kPairRows * kPairColumns);
          }
          for (int r = 0; r < count; r++) {
            const float* weights = probabilityScales(unit, t) + (row + r) * kTileBlocks;
            for (int g = 0; g < groups; g++) {
              float* out = state.out + (row + r) * state.outSize + (group + g) * kLanes;
              Floats sum = load<Floats>(out);
              for (int b = 0; b < kTileBlocks; b++) {
                Floats scale = load<Floats>(packed_.valueScales(tile, b, group + g)) * weights[b];
                sum += toFloats(load<Ints>(unit.products + (b * kPairRows + r) * kPairColumns + g * kLanes)) * scale;
              }
              store(out, sum);
            }
          }
        }
      }
    }
    unit.pending = 0;
  }

 private:
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

  // Two by two tiles share their operands.
  static constexpr int kPairRows = 32;
  static constexpr int kPairColumns = 32;

  // Rows past the count are computed, too, from whatever is there, but not used.
  static void multiplySigned(const int8_t* a, int64_t stride, const uint8_t* b, int64_t panelBytes, int64_t blocks,
                             int count, int32_t* products) {
    storesBeforeTiles();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t i = 0; i < blocks; i++, a += kBlock, b += kBlockBytes) {
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
    storesBeforeTiles();
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
