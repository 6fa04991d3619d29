// The keys and values of one layer, as the kernel reads them: floats or binary16 (plain_tiles.h), or packed codes
// of MX blocks (cache_tiles.h). Appended in place, growing by chunks. One owner at a time; not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cpu/dispatch.h"
#include "cpu/problem.h"
#include "cpu/scratch.h"
#include "cpu/tiles.h"

namespace mxattn::cpu {

struct CacheShape {
  int64_t batch;
  int64_t kvHeads;
  int64_t headSize;
  int64_t valueHeadSize;
  CacheFormat format;
};

class LayerCache {
 public:
  LayerCache(const CacheShape& shape, const Build& build);

  const CacheShape& shape() const { return shape_; }
  int64_t length() const { return length_; }
  // Of all chunks, used or not.
  size_t bytes() const;

  // Makes the cache part of a problem whose key and value are `count` new tokens: the kernel appends them and attends
  // to all. `appended` afterwards.
  void prepare(Problem& problem, int64_t count);
  void appended(int64_t count) { length_ += count; }

  // A copy of the first `length` tokens.
  std::unique_ptr<LayerCache> fork(int64_t length) const;

  // Keys [batch, kvHeads, length, headSize], or values, as floats.
  void readKeys(float* out) const;
  void readValues(float* out) const;

  // Appends without attending.
  void append(const float* key, const float* value, int64_t count, const Parallel& parallel, Scratch& scratch);

 private:
  int64_t heads() const { return shape_.batch * shape_.kvHeads; }
  Problem problemOf(int64_t length) const;
  void grow(int64_t tiles);
  void read(ReadCache part, float* out) const;
  // MX blocks of values have one scale for 32 tokens, of which the last may be incomplete.
  bool hasTail() const { return shape_.format != CacheFormat::kFloat32 && shape_.format != CacheFormat::kFloat16; }

  CacheShape shape_;
  const Build build_;
  int64_t length_ = 0;
  size_t chunkBytes_;
  int64_t tileBytes_;
  // Several chunks each.
  std::vector<std::unique_ptr<uint8_t, void (*)(uint8_t*)>> memory_;
  std::vector<uint8_t*> chunks_;
  Tiles tiles_{};
  // Values of the tokens of the last block, [head][kTailTokens][valueHeadSize]: a block has one scale per channel, so it is
  // quantised anew when a token joins it.
  std::vector<float> tail_;
};

}  // namespace mxattn::cpu
