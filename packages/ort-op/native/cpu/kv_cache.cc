#include "cpu/kv_cache.h"

#include <algorithm>
#include <cstring>
#include <new>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace mxattn::cpu {
namespace {

// 1,024 tokens.
constexpr int64_t kTilesPerChunk = 16;
constexpr std::align_val_t kAlignment{64};
// From this on memory is worth the kernel's trouble of finding large pages, which save a page fault per 4 KiB.
constexpr size_t kLargePage = size_t{2} << 20;

uint8_t* allocate(size_t bytes) {
  auto* memory = static_cast<uint8_t*>(::operator new(bytes, kAlignment));
#ifdef __linux__
  if (bytes >= kLargePage) {
    auto address = (reinterpret_cast<uintptr_t>(memory) + kLargePage - 1) & ~(kLargePage - 1);
    size_t skipped = address - reinterpret_cast<uintptr_t>(memory);
    if (skipped < bytes) madvise(reinterpret_cast<void*>(address), bytes - skipped, MADV_HUGEPAGE);
  }
#endif
  std::memset(memory, 0, bytes);
  return memory;
}

void release(uint8_t* memory) { ::operator delete(memory, kAlignment); }

int64_t tilesOf(int64_t tokens) { return (tokens + kTileKeys - 1) / kTileKeys; }

}  // namespace

LayerCache::LayerCache(const CacheShape& shape, const Build& build) : shape_(shape), build_(build) {
  tileBytes_ = build.cacheTileBytes(problemOf(0));
  chunkBytes_ = heads() * kTilesPerChunk * tileBytes_;
  if (hasTail()) tail_.resize(heads() * kTailTokens * shape.valueHeadSize);
}

size_t LayerCache::bytes() const { return chunks_.size() * chunkBytes_ + tail_.size() * sizeof(float); }

Problem LayerCache::problemOf(int64_t length) const {
  Problem problem{};
  problem.batch = shape_.batch;
  problem.heads = problem.kvHeads = shape_.kvHeads;
  problem.headSize = shape_.headSize;
  problem.valueHeadSize = shape_.valueHeadSize;
  problem.keyLength = length;
  problem.cacheFormat = shape_.format;
  problem.windowLeft = problem.windowRight = -1;
  return problem;
}

void LayerCache::grow(int64_t tiles) {
  int64_t have = static_cast<int64_t>(chunks_.size());
  int64_t missing = (tiles + kTilesPerChunk - 1) / kTilesPerChunk - have;
  if (missing > 0) {
    // A long cache grows by more at a time, so that large pages serve it, but never by more than an eighth.
    int64_t count = std::max(missing, have / 8);
    memory_.emplace_back(allocate(count * chunkBytes_), release);
    for (int64_t i = 0; i < count; i++) chunks_.push_back(memory_.back().get() + i * chunkBytes_);
  }
  tiles_ = Tiles{chunks_.data(), kTilesPerChunk, tileBytes_};
}

void LayerCache::prepare(Problem& problem, int64_t count) {
  grow(tilesOf(length_ + count));
  problem.cache = &tiles_;
  problem.cacheTail = tail_.data();
  problem.cacheFormat = shape_.format;
  problem.firstNewKey = length_;
  problem.keyLength = length_ + count;
}

void LayerCache::append(const float* key, const float* value, int64_t count, const Parallel& parallel,
                        Scratch& scratch) {
  Problem problem = problemOf(0);
  problem.key = key;
  problem.value = value;
  prepare(problem, count);
  build_.append(problem, parallel, scratch);
  appended(count);
}

std::unique_ptr<LayerCache> LayerCache::fork(int64_t length) const {
  auto copy = std::make_unique<LayerCache>(shape_, build_);
  copy->grow(tilesOf(length));
  for (int64_t head = 0; head < heads(); head++) {
    for (int64_t tile = 0; tile < tilesOf(length); tile++) {
      std::memcpy(copy->tiles_.at(head, tile), tiles_.at(head, tile), tileBytes_);
    }
  }
  copy->length_ = length;
  if (tail_.empty() || length % kTailTokens == 0) return copy;
  if (length / kTailTokens == length_ / kTailTokens) {
    copy->tail_ = tail_;
  } else {
    // The floats of that block are gone; its codes are the next best.
    std::vector<float> values(heads() * length * shape_.valueHeadSize);
    copy->readValues(values.data());
    int64_t first = length / kTailTokens * kTailTokens, size = shape_.valueHeadSize;
    for (int64_t head = 0; head < heads(); head++) {
      std::memcpy(copy->tail_.data() + head * kTailTokens * size, values.data() + (head * length + first) * size,
                  (length - first) * size * sizeof(float));
    }
  }
  return copy;
}

void LayerCache::read(ReadCache part, float* out) const {
  Problem problem = problemOf(length_);
  problem.cache = &tiles_;
  Scratch scratch;
  part(problem, scratch, out);
}

void LayerCache::readKeys(float* out) const { read(build_.readKeys, out); }
void LayerCache::readValues(float* out) const { read(build_.readValues, out); }

}  // namespace mxattn::cpu
