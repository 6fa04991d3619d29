// What the bias does to each row in each tile of keys, looked up once per call. Exported models carry causality and
// padding as tensors of 0 and minus infinity, of which most tiles are one or the other.

enum class BiasKind : uint8_t {
  kNothing,   // zeros
  kSomething,
  kVeryLow,   // all at most kVeryLowBias
  kHidden,    // all minus infinity
};

// A score has no weight beside one that is this much higher.
constexpr float kVeryLowBias = -1e30f;

// Of a block of rows in a tile.
struct BiasUse {
  bool visible;  // some row has a key that may have weight
  bool added;    // some row's scores change
};

class BiasTiles {
 public:
  // Small enough a table for any length: a byte for 64 elements of the bias.
  static int64_t bytes(const Problem& problem) {
    return applies(problem) ? distinctRows(problem) * ceilDivide(problem.keyLength, kTileKeys) : 0;
  }

  BiasTiles(const Problem& problem, uint8_t* memory, const Parallel& parallel) : problem_(problem) {
    if (!applies(problem)) return;
    kinds_ = reinterpret_cast<BiasKind*>(memory);
    tiles_ = ceilDivide(problem.keyLength, kTileKeys);
    int64_t rows = distinctRows(problem), tasks = ceilDivide(rows, kRowBlock);
    parallel.each(tasks, [&](size_t task) {
      for (int64_t row = task * kRowBlock, end = std::min<int64_t>(rows, row + kRowBlock); row < end; row++) {
        int64_t query = row % queries(problem), head = row / queries(problem) % heads(problem);
        int64_t batch = row / queries(problem) / heads(problem);
        const float* bias = problem.bias + batch * problem.biasBatchStride + head * problem.biasHeadStride +
                            query * problem.biasQueryStride;
        for (int64_t t = 0; t < tiles_; t++) {
          int64_t count = std::min<int64_t>(kTileKeys, problem.keyLength - t * kTileKeys);
          kinds_[row * tiles_ + t] = kindOf(bias + t * kTileKeys, count);
        }
      }
    });
  }

  // A bias that differs from key to key.
  bool known() const { return kinds_ != nullptr; }

  // Whether a row is sure to have a key that very low ones have no weight beside.
  bool weighty(const Problem& problem, const Rows& rows, int row) const {
    KeyRange range = visibleKeys(problem, rows.query(problem, row));
    const BiasKind* kinds = kindsOf(rows, row);
    for (int64_t t = ceilDivide(range.begin, kTileKeys); t < tiles_; t++) {
      if (std::min((t + 1) * kTileKeys, problem.keyLength) > range.end) break;
      if (kinds[t] <= BiasKind::kSomething) return true;
    }
    return false;
  }

  BiasUse use(const Rows& rows, int64_t tile, const bool* weighty) const {
    BiasUse use{false, false};
    for (int row = 0; row < rows.count; row++) {
      BiasKind kind = kindsOf(rows, row)[tile];
      use.added |= kind != BiasKind::kNothing;
      use.visible |= kind != BiasKind::kHidden && !(kind == BiasKind::kVeryLow && weighty[row]);
    }
    return use;
  }

 private:
  static bool applies(const Problem& problem) { return problem.bias && problem.biasKeyStride != 0; }
  static int64_t queries(const Problem& problem) { return problem.biasQueryStride ? problem.queryLength : 1; }
  static int64_t heads(const Problem& problem) { return problem.biasHeadStride ? problem.heads : 1; }
  static int64_t distinctRows(const Problem& problem) {
    return (problem.biasBatchStride ? problem.batch : 1) * heads(problem) * queries(problem);
  }

  const BiasKind* kindsOf(const Rows& rows, int row) const {
    int64_t batch = problem_.biasBatchStride ? rows.batch : 0;
    int64_t head = problem_.biasHeadStride ? rows.head(problem_, row) : 0;
    int64_t query = problem_.biasQueryStride ? rows.query(problem_, row) : 0;
    return kinds_ + ((batch * heads(problem_) + head) * queries(problem_) + query) * tiles_;
  }

  // NaN is neither zero nor low.
  static BiasKind kindOf(const float* bias, int64_t count) {
    Ints zero = splat(-1), low = splat(-1), hidden = splat(-1);
    for (int64_t j = 0; j < count; j += kLanes) {
      Floats b;
      if (count - j >= kLanes) {
        b = load<Floats>(bias + j);
      } else {
        b = splat(bias[j]);
        for (int64_t i = 1; i < count - j; i++) b[i] = bias[j + i];
      }
      zero &= b == 0.f;
      low &= b <= kVeryLowBias;
      hidden &= b == -kInfinity;
    }
    if (!anyLane(~zero)) return BiasKind::kNothing;
    if (!anyLane(~hidden)) return BiasKind::kHidden;
    return anyLane(~low) ? BiasKind::kSomething : BiasKind::kVeryLow;
  }

  const Problem& problem_;
  BiasKind* kinds_ = nullptr;
  int64_t tiles_ = 0;
};
