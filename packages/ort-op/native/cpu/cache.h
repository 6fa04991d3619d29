// The tiles of a cache: of MX blocks (cache_tiles.h), of floats or of binary16 (plain_tiles.h). New tokens are appended
// here; reading them for attention is up to the engines.

class Cache {
 public:
  explicit Cache(const Problem& problem)
      : problem_(problem),
        format_(problem.cacheFormat),
        blocks_(problem, problem.cacheFormat),
        floats_(problem),
        halves_(problem),
        rotated_(hasBlocks() && rotates(problem.headSize)) {
    if (problem.cache) tiles_ = *problem.cache;
  }

  bool hasBlocks() const { return format_ != CacheFormat::kFloat32 && format_ != CacheFormat::kFloat16; }

  // Calls task(tiles) with the CacheTiles or PlainTiles of the format.
  template <typename Task>
  void with(const Task& task) const {
    if (hasBlocks()) {
      task(blocks_);
    } else {
      withPlain(task);
    }
  }

  int64_t tileBytes() const {
    int64_t bytes = 0;
    with([&](const auto& tiles) { bytes = tiles.bytes(); });
    return bytes;
  }

  // Keys are rotated before they are quantised, and stay so.
  bool rotated() const { return rotated_; }

  const uint8_t* tile(int64_t head, int64_t index) const { return tiles_.at(head, index); }
  const CacheTiles& blocks() const { return blocks_; }

  void append(const Parallel& parallel) {
    int64_t first = problem_.firstNewKey / kTileKeys, count = ceilDivide(problem_.keyLength, kTileKeys) - first;
    int64_t heads = problem_.batch * problem_.kvHeads;
    parallel.each(heads * count, [&](size_t index) {
      int64_t head = index / count, tile = first + index % count;
      appendKeys(head, tile);
      appendValues(head, tile);
    });
    if (!hasBlocks() || problem_.keyLength % kBlock == 0) return;
    int64_t size = problem_.valueHeadSize, lastBlock = problem_.keyLength / kBlock * kBlock;
    for (int64_t head = 0; head < heads; head++) {
      for (int64_t token = std::max(lastBlock, problem_.firstNewKey); token < problem_.keyLength; token++) {
        std::memcpy(problem_.cacheTail + (head * kBlock + token % kBlock) * size, newValue(head, token),
                    size * sizeof(float));
      }
    }
  }

  // All keys, rotated back, [head][token][headSize]; `room` is a tile of floats.
  void readKeys(float* room, float* out) const {
    int64_t size = problem_.headSize;
    eachTile([&](const uint8_t* tile, int64_t firstRow, int64_t count) {
      with([&](const auto& tiles) { tiles.readKeys(tile, room); });
      for (int64_t token = 0; token < count; token++) {
        const float* from = room + token / kLanes * size * kLanes + token % kLanes;
        float* to = out + (firstRow + token) * size;
        if (rotated_) {
          alignas(64) float x[kLargestHeadSize];
          for (int64_t c = 0; c < size; c++) x[c] = from[c * kLanes];
          rotate(x, size);
          std::memcpy(to, x, size * sizeof(float));
        } else {
          for (int64_t c = 0; c < size; c++) to[c] = from[c * kLanes];
        }
      }
    });
  }

  void readValues(float* room, float* out) const {
    int64_t size = problem_.valueHeadSize;
    eachTile([&](const uint8_t* tile, int64_t firstRow, int64_t count) {
      with([&](const auto& tiles) { tiles.readValues(tile, room); });
      for (int64_t token = 0; token < count; token++) {
        float* to = out + (firstRow + token) * size;
        for (int64_t c = 0; c < size; c++) to[c] = room[(c / kLanes * kTileKeys + token) * kLanes + c % kLanes];
      }
    });
  }

 private:
  template <typename Task>
  void eachTile(const Task& task) const {
    for (int64_t head = 0; head < problem_.batch * problem_.kvHeads; head++) {
      for (int64_t first = 0; first < problem_.keyLength; first += kTileKeys) {
        task(tiles_.at(head, first / kTileKeys), head * problem_.keyLength + first,
             std::min<int64_t>(kTileKeys, problem_.keyLength - first));
      }
    }
  }

  const float* newKey(int64_t head, int64_t token) const {
    int64_t count = problem_.keyLength - problem_.firstNewKey;
    return problem_.key + (head * count + token - problem_.firstNewKey) * problem_.headSize;
  }

  const float* newValue(int64_t head, int64_t token) const {
    int64_t count = problem_.keyLength - problem_.firstNewKey;
    return problem_.value + (head * count + token - problem_.firstNewKey) * problem_.valueHeadSize;
  }

  void appendKeys(int64_t head, int64_t tile) {
    uint8_t* to = tiles_.at(head, tile);
    int64_t first = std::max(tile * kTileKeys, problem_.firstNewKey);
    int64_t end = std::min(tile * kTileKeys + kTileKeys, problem_.keyLength);
    if (hasBlocks()) {
      if (first == tile * kTileKeys) blocks_.startKeys(to);
      for (int64_t key = first; key < end; key++) {
        alignas(64) float x[kLargestHeadSize];
        prepareRow(newKey(head, key), problem_.headSize, 1.f, x);
        blocks_.putKey(to, key % kTileKeys, x);
      }
    } else {
      withPlain([&](const auto& tiles) {
        for (int64_t key = first; key < end; key++) tiles.putKey(to, key % kTileKeys, newKey(head, key));
      });
    }
  }

  void appendValues(int64_t head, int64_t tile) {
    uint8_t* to = tiles_.at(head, tile);
    int64_t size = problem_.valueHeadSize, groups = ceilDivide(size, kLanes);
    if (!hasBlocks()) {
      int64_t first = std::max(tile * kTileKeys, problem_.firstNewKey);
      int64_t end = std::min(tile * kTileKeys + kTileKeys, problem_.keyLength);
      withPlain([&](const auto& tiles) {
        for (int64_t token = first; token < end; token++) {
          const float* row = newValue(head, token);
          for (int64_t g = 0; g < groups; g++) {
            tiles.putValue(to, token % kTileKeys, g, loadFirst(row + g * kLanes, size - g * kLanes));
          }
        }
      });
      return;
    }
    for (int64_t b = 0; b < kTileBlocks; b++) {
      int64_t first = tile * kTileKeys + b * kBlock, end = std::min(first + kBlock, problem_.keyLength);
      // A block that no new token joins stays as it is.
      if (end <= problem_.firstNewKey) continue;
      for (int64_t g = 0; g < groups; g++) {
        Floats x[kBlock] = {};
        for (int64_t token = first; token < end; token++) {
          // Earlier tokens of the block are in the tail.
          const float* row = token >= problem_.firstNewKey
                                 ? newValue(head, token)
                                 : problem_.cacheTail + (head * kBlock + token % kBlock) * size;
          x[token - first] = loadFirst(row + g * kLanes, size - g * kLanes);
        }
        blocks_.putValues(to, b, g, x);
      }
    }
  }

  template <typename Task>
  void withPlain(const Task& task) const {
    if (format_ == CacheFormat::kFloat32) {
      task(floats_);
    } else {
      task(halves_);
    }
  }

  const Problem& problem_;
  CacheFormat format_;
  CacheTiles blocks_;
  PlainTiles<float> floats_;
  PlainTiles<uint16_t> halves_;
  bool rotated_;
  Tiles tiles_{};
};
