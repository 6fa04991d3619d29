// A cache of floats. A tile holds rows of keys, then rows of values, padded to whole vectors: exact products of a few rows
// read it where it is.

class RowCache {
 public:
  explicit RowCache(const Problem& problem)
      : problem_(problem), padded_(ceilDivide(problem.valueHeadSize, kLanes) * kLanes) {}

  int64_t tileBytes() const { return kTileKeys * (problem_.headSize + padded_) * sizeof(float); }

  float* key(int64_t head, int64_t token) const {
    return tile(head, token) + token % kTileKeys * problem_.headSize;
  }

  float* value(int64_t head, int64_t token) const {
    return tile(head, token) + kTileKeys * problem_.headSize + token % kTileKeys * padded_;
  }

  void append(const Parallel& parallel) const {
    int64_t count = problem_.keyLength - problem_.firstNewKey;
    int64_t size = problem_.headSize, valueSize = problem_.valueHeadSize;
    parallel.each(problem_.batch * problem_.kvHeads, [&](size_t head) {
      for (int64_t i = 0; i < count; i++) {
        int64_t token = problem_.firstNewKey + i, row = head * count + i;
        std::memcpy(key(head, token), problem_.key + row * size, size * sizeof(float));
        std::memcpy(value(head, token), problem_.value + row * valueSize, valueSize * sizeof(float));
      }
    });
  }

  // All keys, [head][token][headSize].
  void readKeys(float* out) const {
    eachRow([&](int64_t head, int64_t token, int64_t row) {
      std::memcpy(out + row * problem_.headSize, key(head, token), problem_.headSize * sizeof(float));
    });
  }

  void readValues(float* out) const {
    eachRow([&](int64_t head, int64_t token, int64_t row) {
      std::memcpy(out + row * problem_.valueHeadSize, value(head, token), problem_.valueHeadSize * sizeof(float));
    });
  }

 private:
  float* tile(int64_t head, int64_t token) const {
    return reinterpret_cast<float*>(problem_.cache->at(head, token / kTileKeys));
  }

  template <typename Task>
  void eachRow(const Task& task) const {
    for (int64_t head = 0; head < problem_.batch * problem_.kvHeads; head++) {
      for (int64_t token = 0; token < problem_.keyLength; token++) task(head, token, head * problem_.keyLength + token);
    }
  }

  const Problem& problem_;
  int64_t padded_;
};
