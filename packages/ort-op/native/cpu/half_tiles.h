// Tiles of a cache of IEEE binary16, in the order in which the exact products read floats: keys [panel of kLanes
// keys][channel][key], then values [group of kLanes channels][token][channel].

class HalfTiles {
 public:
  explicit HalfTiles(const Problem& problem)
      : headSize_(problem.headSize),
        keys_(kTileKeys * problem.headSize),
        values_(kTileKeys * ceilDivide(problem.valueHeadSize, kLanes) * kLanes) {}

  int64_t bytes() const { return (keys_ + values_) * sizeof(uint16_t); }

  void putKey(uint8_t* tile, int64_t key, const float* x) const {
    uint16_t* to = halves(tile) + key / kLanes * headSize_ * kLanes + key % kLanes;
    for (int64_t c = 0; c < headSize_; c++) to[c * kLanes] = floatToHalf(x[c]);
  }

  // kLanes channels of a token.
  void putValue(uint8_t* tile, int64_t token, int64_t group, Floats x) const {
    uint16_t* to = halves(tile) + keys_ + (group * kTileKeys + token) * kLanes;
    for (int j = 0; j < kLanes; j++) to[j] = floatToHalf(x[j]);
  }

  void readKeys(const uint8_t* tile, float* to) const { fromHalf(halves(tile), to, keys_); }
  void readValues(const uint8_t* tile, float* to) const { fromHalf(halves(tile) + keys_, to, values_); }

 private:
  static uint16_t* halves(uint8_t* tile) { return reinterpret_cast<uint16_t*>(tile); }
  static const uint16_t* halves(const uint8_t* tile) { return reinterpret_cast<const uint16_t*>(tile); }

  int64_t headSize_;
  int64_t keys_;
  int64_t values_;
};
