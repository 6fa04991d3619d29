// Tiles of a cache of floats or of IEEE binary16, in the order in which products of floats read them, in place: keys [panel
// of kLanes keys][channel][key], then values [group of kLanes channels][token][channel].

template <typename Number>
class PlainTiles {
 public:
  explicit PlainTiles(const Problem& problem)
      : headSize_(problem.headSize),
        keys_(kTileKeys * problem.headSize),
        values_(kTileKeys * ceilDivide(problem.valueHeadSize, kLanes) * kLanes) {}

  int64_t bytes() const { return (keys_ + values_) * sizeof(Number); }

  const Number* keys(const uint8_t* tile) const { return reinterpret_cast<const Number*>(tile); }
  const Number* values(const uint8_t* tile) const { return keys(tile) + keys_; }

  void putKey(uint8_t* tile, int64_t key, const float* x) const {
    Number* to = reinterpret_cast<Number*>(tile) + key / kLanes * headSize_ * kLanes + key % kLanes;
    for (int64_t c = 0; c < headSize_; c++) put(x[c], to + c * kLanes);
  }

  // kLanes channels of a token.
  void putValue(uint8_t* tile, int64_t token, int64_t group, Floats x) const {
    Number* to = reinterpret_cast<Number*>(tile) + keys_ + (group * kTileKeys + token) * kLanes;
    for (int j = 0; j < kLanes; j++) put(x[j], to + j);
  }

  void readKeys(const uint8_t* tile, float* to) const { read(keys(tile), keys_, to); }
  void readValues(const uint8_t* tile, float* to) const { read(values(tile), values_, to); }

 private:
  MXATTN_INLINE void put(float x, float* to) { *to = x; }
  MXATTN_INLINE void put(float x, uint16_t* to) { *to = floatToHalf(x); }

  static void read(const Number* from, int64_t count, float* to) {
    for (int64_t i = 0; i < count; i += kLanes) store(to + i, loadNumbers(from + i));
  }

  int64_t headSize_;
  int64_t keys_;
  int64_t values_;
};
