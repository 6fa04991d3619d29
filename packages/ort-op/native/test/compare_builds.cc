// Compares every build of the kernel that this processor can run with the portable one, on random attentions and caches.
// For processors on which the test suite itself does not run; see tools/arm64.mjs. Prints what differs; exits with 1 then.
#include <cmath>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cpu/dispatch.h"
#include "cpu/kv_cache.h"

using namespace mxattn::cpu;

namespace {

using Numbers = std::vector<float>;

const Parallel kSerial{nullptr, [](void*, size_t count, void* task, void (*call)(void*, size_t)) {
                         for (size_t i = 0; i < count; i++) call(task, i);
                       }};

struct Case {
  Problem problem{};
  Numbers query, key, value, bias, pastKey, pastValue;
  int64_t past = -1;  // tokens in a cache; negative: no cache
  CacheFormat format = CacheFormat::kFloat32;
};

class Generator {
 public:
  explicit Generator(unsigned seed) : engine_(seed) {}

  int upTo(int most) { return static_cast<int>(engine_() % (most + 1)); }

  Numbers normal(int64_t count) {
    Numbers numbers(count);
    for (float& each : numbers) each = distribution_(engine_);
    return numbers;
  }

  Case next() {
    constexpr int kSizes[] = {1, 8, 32, 33, 64, 80, 128, 192};
    Case c;
    Problem& p = c.problem;
    p.batch = 1 + upTo(1);
    p.kvHeads = 1 + upTo(1);
    p.heads = p.kvHeads * (1 + upTo(3));
    p.queryLength = 1 + upTo(upTo(1) ? 120 : 3);
    p.keyLength = 1 + upTo(260);
    p.headSize = kSizes[upTo(7)];
    p.valueHeadSize = kSizes[upTo(7)];
    p.scale = 1 / std::sqrt(static_cast<float>(p.headSize));
    p.precision = static_cast<Precision>(upTo(3));
    p.causal = upTo(1) == 1;
    p.windowLeft = upTo(2) ? -1 : upTo(50);
    p.windowRight = upTo(2) ? -1 : upTo(50);
    p.softcap = upTo(3) ? 0 : 2;
    c.query = normal(p.batch * p.heads * p.queryLength * p.headSize);
    c.key = normal(p.batch * p.kvHeads * p.keyLength * p.headSize);
    c.value = normal(p.batch * p.kvHeads * p.keyLength * p.valueHeadSize);
    if (upTo(1)) {
      c.past = upTo(200);
      c.pastKey = normal(p.batch * p.kvHeads * c.past * p.headSize);
      c.pastValue = normal(p.batch * p.kvHeads * c.past * p.valueHeadSize);
      do {
        c.format = static_cast<CacheFormat>(upTo(4));
      } while (!canRead(p.precision, c.format));
    }
    if (upTo(1)) {
      p.biasKeyStride = 1;
      p.biasQueryStride = p.keyLength + std::max<int64_t>(c.past, 0);
      c.bias = normal(p.queryLength * p.biasQueryStride);
      for (float& each : c.bias) {
        if (upTo(2) == 0) each = -INFINITY;
      }
    }
    return c;
  }

 private:
  std::mt19937 engine_;
  std::normal_distribution<float> distribution_;
};

// The output, and what the cache holds afterwards.
Numbers run(const Build& build, const Case& c) {
  Problem p = c.problem;
  Numbers out(p.batch * p.heads * p.queryLength * p.valueHeadSize);
  p.query = c.query.data();
  p.key = c.key.data();
  p.value = c.value.data();
  p.bias = c.bias.empty() ? nullptr : c.bias.data();
  p.out = out.data();
  Scratch scratch;
  if (c.past < 0) {
    build.kernel(p, kSerial, scratch);
    return out;
  }
  LayerCache cache({p.batch, p.kvHeads, p.headSize, p.valueHeadSize, c.format}, build);
  if (c.past > 0) cache.append(c.pastKey.data(), c.pastValue.data(), c.past, kSerial, scratch);
  cache.prepare(p, p.keyLength);
  build.kernel(p, kSerial, scratch);
  cache.appended(c.problem.keyLength);
  size_t at = out.size(), tokens = p.batch * p.kvHeads * cache.length();
  out.resize(at + tokens * (p.headSize + p.valueHeadSize));
  cache.readKeys(out.data() + at);
  cache.readValues(out.data() + at + tokens * p.headSize);
  return out;
}

double relativeError(const Numbers& a, const Numbers& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < b.size(); i++) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference / (norm > 0 ? norm : 1));
}

}  // namespace

int main() {
  constexpr int kCases = 250;
  std::vector<Build> builds = supportedBuilds();
  const Build& portable = builds.back();
  bool failed = false;
  for (const Build& build : builds) {
    Generator generator(1);
    double worst = 0;
    for (int i = 0; i < kCases; i++) {
      Case c = generator.next();
      double error = relativeError(run(build, c), run(portable, c));
      // Rounding of sums in another order; of quantised weights that are near a tie now and then.
      double bound = c.problem.precision == Precision::kFloat32 ? 2e-6 : 1e-2;
      worst = std::max(worst, error);
      if (error < bound) continue;
      failed = true;
      std::printf("%s, case %d: differs by %g\n", build.name, i, error);
    }
    std::printf("%s: %d cases, at most %.2g from portable\n", build.name, kCases, worst);
  }
  return failed ? 1 : 0;
}
