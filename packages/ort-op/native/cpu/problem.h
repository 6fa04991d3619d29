// One attention on the CPU: shapes, strides, data and what may run in parallel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/tiles.h"

namespace mxattn::cpu {

// Stable ids, equal to `id` of the recipes in @mxattn/core.
enum class Precision : int32_t { kFloat32 = 0, kMxfp6 = 1, kMxfp4 = 2, kMxfp8 = 3 };

// How a cache holds keys and values: cache_tiles.h. Up to kMxfp8 the ids are those of the precisions of the same format.
enum class CacheFormat : int32_t { kFloat32 = 0, kMxfp6 = 1, kMxfp4 = 2, kMxfp8 = 3, kFloat16 = 4 };

// Whether attention of a precision can read a cache: exact attention reads all, 8-bit products MX blocks, and integer
// products those whose elements are integers.
constexpr bool canRead(Precision precision, CacheFormat format) {
  if (precision == Precision::kFloat32) return true;
  bool integers = format == CacheFormat::kMxfp6 || format == CacheFormat::kMxfp4;
  return integers || (precision == Precision::kMxfp8 && format == CacheFormat::kMxfp8);
}

// The block-scaled kernels keep a row of query or key on the stack.
constexpr int64_t kLargestHeadSize = 1024;

// Query [batch, heads, queryLength, headSize], key [batch, kvHeads, keyLength, headSize], value
// [batch, kvHeads, keyLength, valueHeadSize], out [batch, heads, queryLength, valueHeadSize]: dense, f32.
// Query head h reads key/value head h / (heads / kvHeads). Query i stands at key position
// i + keyLength - queryLength.
struct Problem {
  const float* query;
  const float* key;
  const float* value;
  float* out;
  int64_t batch;
  int64_t heads;
  int64_t kvHeads;
  int64_t queryLength;
  int64_t keyLength;
  int64_t headSize;
  int64_t valueHeadSize;
  float scale;
  Precision precision;
  // Added to the scaled scores; strides in elements, 0 along a broadcast axis. Null: no bias.
  const float* bias = nullptr;
  int64_t biasBatchStride = 0;
  int64_t biasHeadStride = 0;
  int64_t biasQueryStride = 0;
  int64_t biasKeyStride = 0;
  // softcap * tanh(score / softcap); 0: none.
  float softcap = 0;
  bool causal = false;
  // Keys seen before and after the query's own position; negative: no limit.
  int64_t windowLeft = -1;
  int64_t windowRight = -1;
  // Per head, enters the sum of the softmax only. Null: none.
  const float* sinks = nullptr;
  // With a cache, key and value are the tokens from firstNewKey on, keyLength - firstNewKey of them; the kernel appends
  // them to the cache and attends to all of it. cacheTail: see kv_cache.h.
  const Tiles* cache = nullptr;
  float* cacheTail = nullptr;
  CacheFormat cacheFormat = CacheFormat::kFloat32;
  int64_t firstNewKey = 0;
};

// Runs task(index) for index in [0, count), perhaps on several threads, and returns when all are done.
struct Parallel {
  void* context;
  void (*run)(void* context, size_t count, void* task, void (*call)(void* task, size_t index));

  template <typename Task>
  void each(size_t count, Task&& task) const {
    run(context, count, &task, [](void* t, size_t index) { (*static_cast<Task*>(t))(index); });
  }
};

}  // namespace mxattn::cpu
