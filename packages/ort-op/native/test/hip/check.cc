// Plans run by the emulation, compared with the portable CPU kernel or with direct.h on random problems:
//   check [architecture...]
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "cpu/problem.h"
#include "cpu/scratch.h"
#include "hip/plan.h"
#include "test/hip/direct.h"
#include "test/hip/emulated.h"

namespace mxattn::cpu::portable {
void run(const Problem&, const Parallel&, Scratch&);
}

namespace {

using mxattn::cpu::Precision;
using mxattn::cpu::Problem;
using mxattn::hip::Address;
using mxattn::hip::Target;

constexpr auto kMxfp6Direct = mxattn::hip::kMxfp6Direct;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLowest = std::numeric_limits<float>::lowest();

struct Case {
  const char* name;
  int64_t batch = 1, heads = 2, kvHeads = 2, queryLength = 70, keyLength = 150, headSize = 64, valueHeadSize = 64;
  bool causal = false;
  int64_t left = -1, right = -1;
  float softcap = 0;
  bool sinks = false;
  // 1: random with minus infinity, 2: causality as the lowest float, 3: the same for all keys, 4: whole rows masked.
  int bias = 0;
  // Added to the query's and the keys' first channel from a key on.
  float hot = 0;
  int64_t hotFrom = 0;
  bool stairs = false;
  float scale = 0;
  bool nan = false;
};

const Case cases[] = {
    {.name = "plain"},
    {.name = "one key", .queryLength = 1, .keyLength = 1},
    {.name = "128", .queryLength = 128, .keyLength = 128},
    {.name = "257 of 128", .heads = 1, .kvHeads = 1, .queryLength = 257, .keyLength = 257, .headSize = 128,
     .valueHeadSize = 128},
    {.name = "head 32", .headSize = 32, .valueHeadSize = 32},
    {.name = "head 40", .headSize = 40, .valueHeadSize = 40},
    {.name = "head 80", .headSize = 80, .valueHeadSize = 80},
    {.name = "head 160", .heads = 1, .kvHeads = 1, .headSize = 160, .valueHeadSize = 160},
    {.name = "head 192/128", .heads = 1, .kvHeads = 1, .headSize = 192, .valueHeadSize = 128},
    {.name = "head 256", .heads = 1, .kvHeads = 1, .headSize = 256, .valueHeadSize = 256},
    {.name = "head 576/512", .heads = 1, .kvHeads = 1, .headSize = 576, .valueHeadSize = 512},
    {.name = "value 24", .valueHeadSize = 24},
    {.name = "grouped", .batch = 2, .heads = 6, .kvHeads = 2},
    {.name = "decode", .heads = 8, .kvHeads = 2, .queryLength = 1, .keyLength = 500, .headSize = 128, .valueHeadSize = 128},
    {.name = "causal", .causal = true},
    {.name = "causal, more queries", .queryLength = 150, .keyLength = 70, .causal = true},
    {.name = "window", .causal = true, .left = 16, .right = 0},
    {.name = "window both", .left = 9, .right = 5},
    {.name = "softcap", .softcap = 2, .scale = 1},
    {.name = "softcap and bias", .softcap = 2, .bias = 1, .scale = 1},
    {.name = "bias", .bias = 1},
    {.name = "lowest float", .bias = 2},
    {.name = "flat bias", .sinks = true, .bias = 3},
    {.name = "masked rows", .sinks = true, .bias = 4},
    {.name = "sinks", .sinks = true},
    {.name = "hot start", .hot = 20, .hotFrom = 0},
    {.name = "hot end", .hot = 40, .hotFrom = 140},
    {.name = "stairs", .heads = 1, .kvHeads = 1, .keyLength = 400, .stairs = true},
    {.name = "NaN", .nan = true},
    {.name = "no key", .keyLength = 0},
};

std::vector<float> normal(int64_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> distribution;
  std::vector<float> values(count);
  for (float& value : values) value = distribution(generator);
  return values;
}

struct Data {
  std::vector<float> query, key, value, bias, sinks;
  Problem problem{};

  Data(const Case& c, Precision precision) {
    query = normal(c.batch * c.heads * c.queryLength * c.headSize, 1);
    key = normal(c.batch * c.kvHeads * c.keyLength * c.headSize, 2);
    value = normal(c.batch * c.kvHeads * c.keyLength * c.valueHeadSize, 3);
    if (c.hot != 0 || c.stairs) {
      for (size_t i = 0; i < query.size(); i += c.headSize) query[i] = std::sqrt(float(c.headSize));
      for (size_t i = 0; i < key.size(); i += c.headSize) {
        int64_t token = int64_t(i) / c.headSize % c.keyLength;
        if (c.stairs) key[i] = 8.f * (token / 64);
        if (c.hot != 0 && token >= c.hotFrom && token < c.hotFrom + 10) key[i] += c.hot;
      }
    }
    if (c.nan) query[5 * c.headSize + 3] = std::nanf("");
    Problem& p = problem;
    p = Problem{query.data(), key.data(), value.data(), nullptr, c.batch, c.heads, c.kvHeads, c.queryLength, c.keyLength,
                c.headSize, c.valueHeadSize, c.scale != 0 ? c.scale : 1 / std::sqrt(float(c.headSize)), precision};
    p.causal = c.causal;
    p.windowLeft = c.left;
    p.windowRight = c.right;
    p.softcap = c.softcap;
    if (c.bias) {
      bias = normal(c.heads * c.queryLength * c.keyLength, 4);
      for (size_t i = 0; i < bias.size(); i++) {
        int64_t row = int64_t(i) / c.keyLength % c.queryLength, column = int64_t(i) % c.keyLength;
        if (c.bias == 1 && i % 3 == 0) bias[i] = -kInfinity;
        if (c.bias == 2) bias[i] = column <= row - 5 ? 0.f : kLowest;
        if (c.bias == 4) bias[i] = row % 4 ? 0.f : -kInfinity;
      }
      p.bias = bias.data();
      p.biasHeadStride = c.queryLength * c.keyLength;
      p.biasQueryStride = c.keyLength;
      p.biasKeyStride = c.bias == 3 ? 0 : 1;
    }
    if (c.sinks) {
      sinks = normal(c.heads, 5);
      p.sinks = sinks.data();
    }
  }

  size_t outSize() const {
    return problem.batch * problem.heads * problem.queryLength * problem.valueHeadSize;
  }
};

const mxattn::cpu::Parallel serial{nullptr, [](void*, size_t count, void* task, void (*call)(void*, size_t)) {
                                     for (size_t i = 0; i < count; i++) call(task, i);
                                   }};

std::vector<float> onCpu(Data& data, Precision precision) {
  std::vector<float> out(data.outSize(), 7.f);
  Problem problem = data.problem;
  problem.precision = precision;
  problem.out = out.data();
  mxattn::cpu::Scratch scratch;
  mxattn::cpu::portable::run(problem, serial, scratch);
  return out;
}

Address addressOf(const void* p) { return reinterpret_cast<uintptr_t>(p); }

void launchAll(const mxattn::hip::Plan& plan, const Target& target) {
  for (const auto& launch : plan.launches) {
    if (!mxattn::hip::emulated::run(target.architecture, launch.kernel, launch.groups, launch.threads, launch.sharedBytes,
                                    launch.arguments.data(), launch.arguments.size())) {
      throw std::runtime_error("no kernel " + launch.kernel);
    }
  }
}

std::vector<float> emulated(const Data& data, const Target& target) {
  std::vector<float> out(data.outSize(), 7.f);
  std::string why = mxattn::hip::unsupported(data.problem, target);
  if (!why.empty()) throw std::runtime_error(why);
  size_t bytes = mxattn::hip::scratchBytes(data.problem, target);
  std::vector<uint8_t> scratch(bytes + 256, 0xff);
  mxattn::hip::Operands operands{addressOf(data.query.data()), addressOf(data.key.data()),
                                 addressOf(data.value.data()), addressOf(data.bias.data()),
                                 addressOf(data.sinks.data()), addressOf(out.data()),
                                 (addressOf(scratch.data()) + 255) / 256 * 256};
  launchAll(mxattn::hip::makePlan(data.problem, target, operands), target);
  return out;
}

// Of those numbers that both have; 1 and more where one has a NaN that the other has not.
double relativeError(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); i++) {
    if (std::isnan(a[i]) != std::isnan(b[i])) return 99;
    if (std::isnan(a[i])) continue;
    difference += double(a[i] - b[i]) * (a[i] - b[i]);
    norm += double(b[i]) * b[i];
  }
  return norm > 0 ? std::sqrt(difference / norm) : difference;
}

// A cache to which tokens are appended: `first` of them without queries, then those up to each length with `queries` queries.
struct CacheCase {
  const char* name;
  int64_t first;
  std::vector<int64_t> lengths;
  int64_t queries;
  int64_t heads = 4, kvHeads = 2, headSize = 64, valueHeadSize = 64;
};

const CacheCase cacheCases[] = {
    {.name = "cache: a token each", .first = 30, .lengths = {31, 32, 33, 34}, .queries = 1},
    {.name = "cache: empty at first", .first = 0, .lengths = {1, 70, 71}, .queries = 1},
    {.name = "cache: long", .first = 500, .lengths = {501}, .queries = 1, .headSize = 128, .valueHeadSize = 128},
    {.name = "cache: 3 queries", .first = 100, .lengths = {103, 133}, .queries = 3, .headSize = 80, .valueHeadSize = 40},
    {.name = "cache: many queries", .first = 100, .lengths = {140}, .queries = 40},
    {.name = "cache: head 160/256", .first = 100, .lengths = {101}, .queries = 1, .headSize = 160, .valueHeadSize = 256},
};

// Rows [from, to) of every head of [heads, length, size].
std::vector<float> slice(const std::vector<float>& all, int64_t heads, int64_t size, int64_t from, int64_t to) {
  int64_t length = int64_t(all.size()) / heads / size;
  std::vector<float> part;
  for (int64_t h = 0; h < heads; h++) {
    part.insert(part.end(), all.begin() + (h * length + from) * size, all.begin() + (h * length + to) * size);
  }
  return part;
}

double checkCache(const Target& target, const CacheCase& c, Precision precision) {
  constexpr int64_t kBatch = 2;
  int64_t heads = kBatch * c.kvHeads, most = c.lengths.back();
  auto query = normal(kBatch * c.heads * c.queries * c.headSize, 1), key = normal(heads * most * c.headSize, 2),
       value = normal(heads * most * c.valueHeadSize, 3);
  mxattn::hip::CacheShape shape{kBatch, c.kvHeads, c.headSize, c.valueHeadSize, precision};
  std::vector<uint8_t> panels(mxattn::hip::panelBytes(shape) * ((most + 31) / 32)), tail(mxattn::hip::tailBytes(shape));
  mxattn::cpu::Tiles cached{};
  int64_t length = 0;
  double worst = 0;
  std::vector<int64_t> lengths = c.lengths;
  lengths.insert(lengths.begin(), c.first);
  for (size_t step = 0; step < lengths.size(); step++) {
    int64_t next = lengths[step], queries = step == 0 ? 0 : std::min(c.queries, next);
    auto newQuery = slice(query, kBatch * c.heads, c.headSize, 0, queries);
    auto newKey = slice(key, heads, c.headSize, length, next), newValue = slice(value, heads, c.valueHeadSize, length, next);
    auto allKey = slice(key, heads, c.headSize, 0, next), allValue = slice(value, heads, c.valueHeadSize, 0, next);
    std::vector<float> out(kBatch * c.heads * queries * c.valueHeadSize, 7.f), expected = out;
    Problem p{newQuery.data(), allKey.data(), allValue.data(), expected.data(), kBatch, c.heads, c.kvHeads, queries, next,
              c.headSize, c.valueHeadSize, 1 / std::sqrt(float(c.headSize)), precision};
    p.causal = true;
    if (queries > 0) {
      mxattn::cpu::Scratch memory;
      mxattn::cpu::portable::run(p, serial, memory);
    }
    p.cache = &cached;
    p.cacheFormat = static_cast<CacheFormat>(precision);
    p.firstNewKey = length;
    std::vector<uint8_t> scratch(mxattn::hip::scratchBytes(p, target) + 256, 0xff);
    mxattn::hip::Operands operands{addressOf(newQuery.data()), addressOf(newKey.data()), addressOf(newValue.data()), 0, 0,
                                   addressOf(out.data()), (addressOf(scratch.data()) + 255) / 256 * 256,
                                   addressOf(panels.data()), addressOf(tail.data())};
    launchAll(mxattn::hip::makePlan(p, target, operands), target);
    length = next;
    worst = std::max(worst, relativeError(out, expected));
    std::vector<float> keys(allKey.size(), 7.f), values(allValue.size(), 7.f);
    launchAll(mxattn::hip::makeReadPlan(shape, length, addressOf(panels.data()), addressOf(tail.data()),
                                        addressOf(keys.data()), addressOf(values.data())), target);
    double bound = precision == Precision::kFloat32 ? 1e-6 : precision == Precision::kMxfp4 ? 0.2 : 0.06;
    if (!(relativeError(keys, allKey) < bound) || !(relativeError(values, allValue) < bound)) return 88;
  }
  return worst;
}

bool report(bool good, const Target& target, Precision precision, const char* name, double error) {
  static const char* const names[] = {"f32", "mxfp6", "mxfp4", "mxfp8"};
  const char* recipe = precision == kMxfp6Direct ? "mxfp6-direct" : names[int(precision)];
  std::printf("%s %-8s %-12s %-22s %.2e\n", good ? "ok  " : "FAIL", target.architecture.c_str(), recipe, name, error);
  return good;
}

bool check(const Target& target, const Case& c, Precision precision) {
  Data data(c, precision);
  if (precision == kMxfp6Direct) {
    double error = relativeError(emulated(data, target), mxattn::direct::attend(data.problem));
    return report(error < 1e-3, target, precision, c.name, error);
  }
  double bound = precision == Precision::kFloat32 ? 2e-5 : 1e-3;
  double error = relativeError(emulated(data, target), onCpu(data, precision));
  return report(error < bound, target, precision, c.name, error);
}

}  // namespace

int main(int count, char** arguments) {
  std::vector<std::string> architectures(arguments + 1, arguments + count);
  if (architectures.empty()) architectures = {"generic", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"};
  int failures = 0;
  for (const std::string& architecture : architectures) {
    Target target{architecture, architecture[3] == '1' ? 32 : 64, 4, 65536};
    for (Precision precision : {Precision::kFloat32, Precision::kMxfp6, Precision::kMxfp4, Precision::kMxfp8, kMxfp6Direct}) {
      for (const Case& c : cases) failures += !check(target, c, precision);
      if (precision == kMxfp6Direct) continue;
      for (const CacheCase& c : cacheCases) {
        double error = checkCache(target, c, precision);
        failures += !report(error < (precision == Precision::kFloat32 ? 2e-5 : 1e-3), target, precision, c.name, error);
      }
    }
  }
  std::printf("%d failures\n", failures);
  return failures > 0;
}
