// mxfp8 on AMX: tiles of bfloat16 pairs, 16 rows by 16 columns by 32 deep. A panel of Bf16Engine is laid out as a tile's
// second operand, and sums are floats that need no scales: scores go straight to their place, and outputs are loaded, added
// to and stored.

class Bf16TileEngine : public Bf16Engine {
 public:
  struct Unit : Bf16Engine::Unit {
    TileConfiguration configuration;
  };

  using Bf16Engine::Bf16Engine;

  Unit begin(const Rows& rows, Arena& arena) const {
    return Unit{Bf16Engine::begin(rows, arena), {}};
  }

  void scores(Unit& unit, const Rows& rows, int64_t firstKey, RowState& state) const {
    int64_t size = problem_.headSize;
    if (size % kDepth != 0) {
      Bf16Engine::scores(unit, rows, firstKey, state);
      return;
    }
    const float* keys = keyPairs(unit, rows, firstKey);
    unit.configuration.set(64);
    storesBeforeTiles();
    for (int row = 0; row < rows.count; row += 32) {
      for (int panel = 0; panel < kTileVectors; panel += 2) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        multiply(unit.query + row * size, size, keys + panel * size * kLanes, size * kLanes, size / kDepth);
        store(state.scores + row * kTileKeys + panel * kLanes, kTileKeys);
      }
    }
  }

  void accumulate(Unit& unit, const Rows& rows, RowState& state) const {
    int64_t groups = paddedValue() / kLanes;
    if (groups % 2 != 0) {
      Bf16Engine::accumulate(unit, rows, state);
      return;
    }
    const float* values = valuePairs(unit, rows);
    unit.pending = 0;
    unit.configuration.set(64);
    storesBeforeTiles();
    for (int row = 0; row < rows.count; row += 32) {
      for (int64_t group = 0; group < groups; group += 2) {
        float* out = state.out + row * state.outSize + group * kLanes;
        load(out, state.outSize);
        multiply(state.scores + row * kTileKeys, kTileKeys, values + group * kTileKeys * kLanes, kTileKeys * kLanes,
                 kTileKeys / kDepth);
        store(out, state.outSize);
      }
    }
  }

 private:
  static constexpr int kDepth = 32;  // numbers: 16 pairs

  // Adds to 32 rows by 32 columns the products of `steps` steps: rows of pairs, `stride` floats apart, with columns of two
  // panels, `panel` floats apart.
  static void multiply(const float* a, int64_t stride, const float* b, int64_t panel, int64_t steps) {
    for (int64_t i = 0; i < steps; i++, a += kDepth / 2, b += kDepth / 2 * kLanes) {
      _tile_loadd(6, b, 64);
      _tile_loadd(7, b + panel, 64);
      _tile_loadd(4, a, stride * 4);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      _tile_loadd(5, a + 16 * stride, stride * 4);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
  }

  static void load(const float* from, int64_t stride) {
    _tile_loadd(0, from, stride * 4);
    _tile_loadd(1, from + kLanes, stride * 4);
    _tile_loadd(2, from + 16 * stride, stride * 4);
    _tile_loadd(3, from + 16 * stride + kLanes, stride * 4);
  }

  static void store(float* to, int64_t stride) {
    _tile_stored(0, to, stride * 4);
    _tile_stored(1, to + kLanes, stride * 4);
    _tile_stored(2, to + 16 * stride, stride * 4);
    _tile_stored(3, to + 16 * stride + kLanes, stride * 4);
  }
};
