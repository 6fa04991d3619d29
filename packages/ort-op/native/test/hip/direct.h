// The recipe mxfp6-direct written down once more, in doubles and without any of the kernels' tricks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "cpu/problem.h"

namespace mxattn::direct {

constexpr double kNone = -std::numeric_limits<double>::infinity();
constexpr double kLog2e = 1.4426950408889634;
constexpr double kCorrection = 60801.0 / 1048576;
constexpr int64_t kTile = 64;

// Rounds blocks of 32 elements, `stride` apart, to E2M3 with a power of two as their scale.
inline void toMxfp6(double* x, int64_t count, int64_t stride) {
  for (int64_t first = 0; first < count; first += 32) {
    int64_t end = std::min(count, first + 32);
    double largest = 0;
    for (int64_t i = first; i < end; i++) largest = std::isnan(x[i * stride]) ? NAN : std::max(largest, std::abs(x[i * stride]));
    if (largest == 0) continue;
    double scale = std::isnan(largest) ? NAN : std::exp2(std::floor(std::log2(largest)) - 2);
    for (int64_t i = first; i < end; i++) {
      double element = x[i * stride] / scale;
      double step = std::exp2(std::max(0.0, std::floor(std::log2(std::abs(element)))) - 3);
      x[i * stride] = std::clamp(std::nearbyint(element / step) * step, -7.5, 7.5) * scale;
    }
  }
}

inline void rotate(double* x, int64_t size) {
  if (size & (size - 1)) return;
  for (int64_t step = 1; step < size; step *= 2) {
    for (int64_t i = 0; i < size; i++) {
      if (i & step) continue;
      double p = x[i], q = x[i + step];
      x[i] = p + q;
      x[i + step] = p - q;
    }
  }
  for (int64_t i = 0; i < size; i++) x[i] /= std::sqrt(double(size));
}

inline std::vector<double> rows(const float* from, int64_t count, int64_t size, double factor) {
  std::vector<double> x(from, from + count * size);
  for (double& element : x) element *= factor;
  for (int64_t r = 0; r < count; r++) {
    rotate(&x[r * size], size);
    toMxfp6(&x[r * size], size, 1);
  }
  return x;
}

inline double e4m3(int code) {
  int exponent = code >> 3, mantissa = code & 7;
  return exponent ? std::ldexp(8 + mantissa, exponent - 10) : std::ldexp(mantissa, -9);
}

// Weight of a score x above the reference, where it is 16.
inline double weight(double x) {
  double code = std::nearbyint(8 * (x + 4 + 7 - kCorrection));
  return e4m3(static_cast<int>(std::clamp(code, 0.0, 126.0)));
}

inline double score(const cpu::Problem& p, double product, int64_t batch, int64_t head, int64_t query, int64_t key) {
  int64_t position = query + p.keyLength - p.queryLength, right = p.causal ? 0 : p.windowRight;
  if ((p.windowLeft >= 0 && key < position - p.windowLeft) || (right >= 0 && key > position + right)) return kNone;
  if (p.softcap > 0) product = p.softcap * kLog2e * std::tanh(product / (p.softcap * kLog2e));
  if (!p.bias) return product;
  return product + kLog2e * p.bias[batch * p.biasBatchStride + head * p.biasHeadStride + query * p.biasQueryStride +
                                   key * p.biasKeyStride];
}

inline std::vector<float> attend(const cpu::Problem& p) {
  auto query = rows(p.query, p.batch * p.heads * p.queryLength, p.headSize, p.scale * kLog2e);
  auto key = rows(p.key, p.batch * p.kvHeads * p.keyLength, p.headSize, 1);
  std::vector<double> value(p.value, p.value + p.batch * p.kvHeads * p.keyLength * p.valueHeadSize);
  for (int64_t h = 0; h < p.batch * p.kvHeads; h++) {
    for (int64_t c = 0; c < p.valueHeadSize; c++) {
      toMxfp6(value.data() + h * p.keyLength * p.valueHeadSize + c, p.keyLength, p.valueHeadSize);
    }
  }
  std::vector<float> out;
  for (int64_t row = 0; row < p.batch * p.heads * p.queryLength; row++) {
    int64_t i = row % p.queryLength, head = row / p.queryLength % p.heads, batch = row / p.queryLength / p.heads;
    int64_t firstKey = (batch * p.kvHeads + head / (p.heads / p.kvHeads)) * p.keyLength;
    double reference = kNone, sum = 0;
    std::vector<double> total(p.valueHeadSize);
    for (int64_t tile = 0; tile < p.keyLength; tile += kTile) {
      std::vector<double> scores;
      double top = kNone;
      for (int64_t j = tile; j < std::min(tile + kTile, p.keyLength); j++) {
        double product = 0;
        for (int64_t c = 0; c < p.headSize; c++) {
          product += query[row * p.headSize + c] * key[(firstKey + j) * p.headSize + c];
        }
        scores.push_back(score(p, product, batch, head, i, j));
        top = std::isnan(scores.back()) || std::isnan(top) ? NAN : std::max(top, scores.back());
      }
      if (top == kNone) continue;
      if (reference == kNone) reference = top;
      if (!(top - reference <= 8.87 - 4)) {
        double factor = std::exp2(reference - top);
        for (double& t : total) t *= factor;
        sum *= factor;
        reference = top;
      }
      for (size_t j = 0; j < scores.size(); j++) {
        double w = std::isnan(reference) ? NAN : weight(scores[j] - reference);
        sum += w;
        for (int64_t c = 0; c < p.valueHeadSize; c++) total[c] += w * value[(firstKey + tile + j) * p.valueHeadSize + c];
      }
    }
    if (p.sinks && reference != kNone) sum += std::exp2(p.sinks[head] * kLog2e - reference + 4);
    for (double t : total) out.push_back(static_cast<float>(reference == kNone ? 0 : t / sum));
  }
  return out;
}

}  // namespace mxattn::direct
