#include "hip/plan.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "hip/kernels/arguments.h"

namespace mxattn::hip {

namespace {

using cpu::Problem;

constexpr size_t kAlignment = 256;
// Of the second and third axis of a grid.
constexpr int64_t kMostGroups = 65535;

int64_t ceilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Blocks of 32 that a head is padded to.
int64_t blocksOf(int64_t size) { return std::max<int64_t>(1, ceilDivide(size, kernels::kBlock)); }

const char* recipeName(cpu::Precision precision) {
  if (precision == kMxfp6Direct) return "mxfp6_direct";
  static const char* const names[] = {"f32", "mxfp6", "mxfp4", "mxfp8"};
  return names[static_cast<int>(precision)];
}

// That of the blocks of query, key and value.
cpu::Precision blockFormat(cpu::Precision precision) {
  return precision == kMxfp6Direct ? cpu::Precision::kMxfp6 : precision;
}

// How the operands of a kernel lie in memory; see kernels/operands.h.
struct OperandKind {
  const char* name;
  int64_t blockBytes;
  int64_t scaleBytes;
  int tokenOrder;
};

// What a problem is computed with on a target.
struct Route {
  OperandKind operands;
  std::string attend;
  uint32_t threads;
  int64_t rowsPerGroup;
  int64_t channelsPerGroup;
  // Blocks of 32 that heads are padded to.
  int64_t headBlocks;
  int64_t valueBlocks;
  // Workgroups that a multiprocessor should have.
  int64_t groupsEach;
  std::vector<std::string> defines;
};

// The matrix instructions of an architecture, of which attend_matrix.h makes something.
struct MatrixUnit {
  OperandKind operands;
  uint32_t threads;
  int64_t rowsPerGroup;
  // Of heads and values together, in blocks of 32: the registers that they need.
  int64_t mostBlocks;
};

bool startsWith(const std::string& text, const char* start) { return text.rfind(start, 0) == 0; }

bool isByteFormat(cpu::Precision precision) {
  return precision == cpu::Precision::kMxfp6 || precision == cpu::Precision::kMxfp4;
}

// With no threads where there is none for the precision.
MatrixUnit matrixUnit(const Target& target, cpu::Precision precision) {
  if (precision == cpu::Precision::kFloat32) return {};
  const std::string& name = target.architecture;
  if (name == "gfx950") {
    cpu::Precision format = blockFormat(precision);
    int64_t bits = format == cpu::Precision::kMxfp4 ? 4 : format == cpu::Precision::kMxfp6 ? 6 : 8;
    return {{"packed", 4 * bits, 1, kernels::kOrderMfma}, 512, 256, 16};
  }
  if (!isByteFormat(precision)) return {};
  if (name == "gfx942" || name == "gfx90a") return {{"bytes", 32, 4, kernels::kOrderMfma}, 256, 128, 16};
  if (startsWith(name, "gfx11")) return {{"bytes", 32, 4, kernels::kOrderGfx11}, 256, 128, 8};
  if (startsWith(name, "gfx12")) return {{"bytes", 32, 4, kernels::kOrderGfx12}, 256, 128, 8};
  return {};
}

// Formats of caches on a GPU are those of precisions, by the same ids; binary16 stays on the host.
cpu::Precision recipeOf(cpu::CacheFormat format) { return static_cast<cpu::Precision>(format); }

// Of keys and values.
cpu::Precision operandPrecision(const Problem& problem) {
  return problem.cache ? recipeOf(problem.cacheFormat) : problem.precision;
}

std::string define(const char* name, int64_t value) { return std::string("-D") + name + "=" + std::to_string(value); }

Route lanesRoute(const Problem& problem, const Target& target) {
  bool bytes = isByteFormat(problem.precision);
  Route route{};
  route.groupsEach = 2;
  route.operands = bytes ? OperandKind{"bytes", 32, 4, kernels::kInOrder} : OperandKind{"floats", 128, 0, kernels::kInOrder};
  route.attend = std::string("attend_lanes_") + recipeName(problem.precision);
  route.threads = kernels::kLaneThreads;
  route.rowsPerGroup = kernels::kLaneThreads;
  route.channelsPerGroup = startsWith(target.architecture, "gfx1") ? kernels::kLaneChannelsRdna : kernels::kLaneChannels;
  route.headBlocks = blocksOf(problem.headSize);
  route.valueBlocks = blocksOf(problem.valueHeadSize);
  route.defines = {define("MXATTN_RECIPE", static_cast<int>(problem.precision))};
  if (problem.cache) route.defines.push_back(define("MXATTN_CACHE_RECIPE", static_cast<int>(problem.cacheFormat)));
  route.defines.push_back("-DMXATTN_NO_MATRIX");
  return route;
}

// Query rows up to which a packed cache is read as it is.
constexpr int64_t kDecodeRows = 16;

bool decodes(const Problem& problem) {
  if (!problem.cache || !isByteFormat(recipeOf(problem.cacheFormat)) || problem.kvHeads == 0) return false;
  return problem.heads / problem.kvHeads * problem.queryLength <= kDecodeRows;
}

// On the query in bytes and the cache.
Route decodeRoute(const Problem& problem, const Target& target) {
  Route route = lanesRoute(problem, target);
  int64_t rows = problem.heads / problem.kvHeads * problem.queryLength;
  route.rowsPerGroup = rows <= 1 ? 1 : rows <= 2 ? 2 : rows <= 4 ? 4 : 8;
  route.attend = std::string("decode_") + recipeName(recipeOf(problem.cacheFormat)) + "_" + std::to_string(route.rowsPerGroup);
  route.threads = kernels::kDecodeThreads;
  route.channelsPerGroup = kernels::kDecodeThreads * kernels::kDecodeChannels;
  route.groupsEach = 16;
  return route;
}

Route routeOf(const Problem& problem, const Target& target) {
  struct Size {
    int64_t head;
    int64_t values;
  };
#define MXATTN_SIZE(head, values) {head, values},
  static constexpr Size sizes[] = {MXATTN_SIZES(MXATTN_SIZE)};
#undef MXATTN_SIZE
  if (decodes(problem)) return decodeRoute(problem, target);
  Route route = lanesRoute(problem, target);
  MatrixUnit unit = matrixUnit(target, problem.precision);
  // Operands of matrix instructions are of one format, but in bytes.
  bool mixed = operandPrecision(problem) != problem.precision && std::string(unit.operands.name) != "bytes";
  if (unit.threads == 0 || mixed) return route;
  for (const Size& size : sizes) {
    if (size.head < route.headBlocks || size.values < route.valueBlocks) continue;
    if (size.head + size.values > unit.mostBlocks) continue;
    std::string head = std::to_string(size.head), values = std::to_string(size.values);
    route.operands = unit.operands;
    route.attend = std::string("attend_matrix_") + recipeName(problem.precision) + "_" + head + "x" + values;
    if (problem.bias || problem.softcap > 0) route.attend += "_adjusted";
    bool small = size.head + size.values <= kernels::kMostBlocksOf8Waves;
    route.threads = small ? unit.threads : std::min<uint32_t>(unit.threads, 256);
    route.rowsPerGroup = small ? unit.rowsPerGroup : std::min<int64_t>(unit.rowsPerGroup, 128);
    route.headBlocks = size.head;
    route.valueBlocks = size.values;
    route.channelsPerGroup = size.values * kernels::kBlock;
    route.defines.pop_back();
    route.defines.push_back(define("MXATTN_HEAD_BLOCKS", size.head));
    route.defines.push_back(define("MXATTN_VALUE_BLOCKS", size.values));
    break;
  }
  return route;
}

// Sizes of a problem, and where its operands are in the scratch memory.
struct Layout {
  int64_t heads;  // key/value heads of all batches
  int64_t rows;   // query rows that share one
  int64_t headBlocks;
  int64_t channels;
  int64_t queryTiles;
  int64_t keyTiles;
  int64_t splits;
  int64_t tilesPerSplit;

  size_t query, queryScales, key, keyScales, value, valueScales, partial, partialSums;
  size_t bytes = 0;

  Layout(const Problem& problem, const Target& target, const Route& route) {
    heads = problem.batch * problem.kvHeads;
    rows = heads == 0 ? 0 : problem.heads / problem.kvHeads * problem.queryLength;
    headBlocks = route.headBlocks;
    channels = route.valueBlocks * kernels::kBlock;
    queryTiles = ceilDivide(rows, kernels::kTileRows);
    keyTiles = ceilDivide(problem.keyLength, kernels::kTileRows);
    chooseSplits(target, route);
    const OperandKind& kind = route.operands;
    int64_t queryBlocks = heads * queryTiles * headBlocks * kernels::kTileRows;
    bool packed = !decodes(problem);
    int64_t keyBlocks = packed ? heads * keyTiles * headBlocks * kernels::kTileRows : 0;
    int64_t valueBlocks = packed ? heads * keyTiles * 2 * channels : 0;
    query = take(queryBlocks * kind.blockBytes);
    queryScales = take(queryBlocks * kind.scaleBytes);
    key = take(keyBlocks * kind.blockBytes);
    keyScales = take(keyBlocks * kind.scaleBytes);
    value = take(valueBlocks * kind.blockBytes);
    valueScales = take(valueBlocks * kind.scaleBytes);
    int64_t parts = splits > 1 ? heads * rows * splits : 0;
    partial = take(parts * problem.valueHeadSize * sizeof(float));
    partialSums = take(parts * 2 * sizeof(float));
  }

 private:
  size_t take(int64_t size) {
    size_t at = bytes;
    bytes += (static_cast<size_t>(size) + kAlignment - 1) / kAlignment * kAlignment;
    return at;
  }

  // Where rows alone leave multiprocessors idle, several workgroups share the keys of a row; each has 4 tiles at least, as it
  // computes the first tile's scores besides.
  void chooseSplits(const Target& target, const Route& route) {
    int64_t groups = heads * ceilDivide(rows, route.rowsPerGroup) * ceilDivide(channels, route.channelsPerGroup);
    int64_t wanted = groups == 0 ? 1 : route.groupsEach * std::max(target.multiprocessors, 1) / groups;
    splits = std::clamp<int64_t>(std::min(wanted, keyTiles / 4), 1, 256);
    tilesPerSplit = std::max<int64_t>(1, ceilDivide(keyTiles, splits));
    splits = std::max<int64_t>(1, ceilDivide(keyTiles, tilesPerSplit));
  }
};

kernels::Masks masksOf(const Problem& problem, const Operands& operands) {
  kernels::Masks masks{};
  masks.bias = problem.bias ? operands.bias : 0;
  masks.sinks = problem.sinks ? operands.sinks : 0;
  masks.biasBatchStride = problem.biasBatchStride;
  masks.biasHeadStride = problem.biasHeadStride;
  masks.biasQueryStride = problem.biasQueryStride;
  masks.biasKeyStride = problem.biasKeyStride;
  masks.heads = static_cast<int>(problem.heads);
  masks.kvHeads = static_cast<int>(problem.kvHeads);
  masks.queryLength = static_cast<int>(problem.queryLength);
  masks.keyLength = static_cast<int>(problem.keyLength);
  auto window = [](int64_t keys) { return keys < 0 ? kernels::kNoWindow : std::min<int64_t>(keys, kernels::kNoWindow); };
  masks.windowLeft = static_cast<int>(window(problem.windowLeft));
  masks.windowRight = problem.causal ? 0 : static_cast<int>(window(problem.windowRight));
  masks.softcap = problem.softcap > 0 ? static_cast<float>(problem.softcap * 1.4426950408889634) : 0.f;
  return masks;
}

// Bits of an element of a packed cache; floats have no scales.
int64_t cacheBits(cpu::Precision format) {
  static constexpr int64_t bits[] = {32, 6, 4, 8};
  return bits[static_cast<int>(format)];
}

kernels::CacheView viewOf(const CacheShape& shape, Address panels, Address tail) {
  kernels::CacheView view{};
  view.panels = panels;
  view.tail = tail;
  view.panelBytes = static_cast<long long>(panelBytes(shape));
  view.headBlocks = static_cast<int>(blocksOf(shape.headSize));
  view.channels = static_cast<int>(blocksOf(shape.valueHeadSize) * kernels::kBlock);
  view.valueSize = static_cast<int>(shape.valueHeadSize);
  int64_t heads = shape.batch * shape.kvHeads;
  view.headBytes = heads == 0 ? 0 : static_cast<int>(view.panelBytes / heads);
  return view;
}

CacheShape shapeOf(const Problem& problem) {
  return {problem.batch, problem.kvHeads, problem.headSize, problem.valueHeadSize, recipeOf(problem.cacheFormat)};
}

// Of the Hadamard rotation; 0 where a head is not rotated.
float rotationNorm(cpu::Precision precision, int64_t size) {
  bool rotated = precision != cpu::Precision::kFloat32 && size > 0 && (size & (size - 1)) == 0;
  return rotated ? static_cast<float>(1 / std::sqrt(static_cast<double>(size))) : 0.f;
}

template <typename Arguments>
Launch launchOf(const std::string& kernel, int64_t x, int64_t y, int64_t z, uint32_t threads, const Arguments& arguments) {
  Launch launch{kernel, {uint32_t(x), uint32_t(y), uint32_t(z)}, threads, 0, std::vector<uint8_t>(sizeof arguments)};
  std::memcpy(launch.arguments.data(), &arguments, sizeof arguments);
  return launch;
}

class Planner {
 public:
  Planner(const Problem& problem, const Target& target, const Operands& operands)
      : problem_(problem),
        operands_(operands),
        route_(routeOf(problem, target)),
        layout_(problem, target, route_),
        view_(problem.cache ? viewOf(shapeOf(problem), operands.panels, operands.tail) : kernels::CacheView{}) {}

  Plan plan() {
    plan_.defines = route_.defines;
    if (layout_.heads == 0) return plan_;
    if (problem_.cache) append();
    if (layout_.rows == 0 || problem_.valueHeadSize == 0) return plan_;
    auto fold = static_cast<float>(problem_.scale * 1.4426950408889634);  // scale * log2(e)
    quantiseRows(kernelName("quantise_rows", problem_.precision),
                 rowsOf(operands_.query, layout_.query, layout_.queryScales, layout_.rows, layout_.queryTiles, fold));
    if (decodes(problem_)) {
      kernels::Decode decode{attendArguments(), view_};
      launchAttend(decode);
    } else {
      if (problem_.cache) {
        expand();
      } else {
        quantiseRows(kernelName("quantise_rows", problem_.precision),
                     rowsOf(operands_.key, layout_.key, layout_.keyScales, problem_.keyLength, layout_.keyTiles, 1));
        quantiseValues();
      }
      launchAttend(attendArguments());
    }
    if (layout_.splits > 1) combine();
    return plan_;
  }

 private:
  template <typename Arguments>
  void launch(const std::string& kernel, int64_t x, int64_t y, int64_t z, uint32_t threads, const Arguments& arguments) {
    if (x > 0 && y > 0 && z > 0) plan_.launches.push_back(launchOf(kernel, x, y, z, threads, arguments));
  }

  Address scratch(size_t offset) const { return operands_.scratch + offset; }

  std::string kernelName(const char* step, cpu::Precision precision) const {
    return std::string(step) + "_" + route_.operands.name + "_" + recipeName(blockFormat(precision));
  }

  kernels::QuantiseRows rowsOf(Address from, size_t codes, size_t scales, int64_t rows, int64_t tiles, float factor) {
    kernels::QuantiseRows a = rowsOf(from, rows, layout_.headBlocks, problem_.precision, factor);
    a.codes = scratch(codes);
    a.scales = scratch(scales);
    a.tiles = static_cast<int>(tiles);
    a.written = a.tiles * kernels::kTileRows;
    return a;
  }

  kernels::QuantiseRows rowsOf(Address from, int64_t rows, int64_t blocks, cpu::Precision precision, float factor) {
    kernels::QuantiseRows a{};
    a.from = from;
    a.rows = static_cast<int>(rows);
    a.size = static_cast<int>(problem_.headSize);
    a.blocks = static_cast<int>(blocks);
    a.written = a.rows;
    a.rowsPerGroup = static_cast<int>(std::min<int64_t>(kernels::kQuantiseThreads / kernels::kRowThreads,
                                                        kernels::kStagedFloats / (blocks * (kernels::kBlock + 1))));
    a.factor = factor;
    a.norm = rotationNorm(precision, problem_.headSize);
    return a;
  }

  void quantiseRows(const std::string& kernel, const kernels::QuantiseRows& a) {
    launch(kernel, ceilDivide(a.written, a.rowsPerGroup), layout_.heads, 1,
           kernels::kQuantiseThreads, a);
  }

  void append() {
    int64_t count = problem_.keyLength - problem_.firstNewKey;
    std::string format = recipeName(recipeOf(problem_.cacheFormat));
    kernels::AppendKeys keys{};
    keys.rows = rowsOf(operands_.key, count, view_.headBlocks, recipeOf(problem_.cacheFormat), 1);
    keys.cache = view_;
    keys.firstToken = static_cast<int>(problem_.firstNewKey);
    launch("append_keys_" + format, ceilDivide(count, keys.rows.rowsPerGroup), layout_.heads, 1, kernels::kQuantiseThreads,
           keys);
    kernels::AppendValues values{};
    values.from = operands_.value;
    values.cache = view_;
    values.firstToken = static_cast<int>(problem_.firstNewKey);
    values.tokens = static_cast<int>(problem_.keyLength);
    int64_t complete = problem_.keyLength / kPanelTokens - problem_.firstNewKey / kPanelTokens;
    launch("append_values_" + format, ceilDivide(complete * view_.channels, kernels::kCacheThreads), layout_.heads, 1,
           kernels::kCacheThreads, values);
    int64_t last = std::max(problem_.firstNewKey, problem_.keyLength / kPanelTokens * kPanelTokens);
    launch("append_tail", ceilDivide((problem_.keyLength - last) * problem_.valueHeadSize, kernels::kCacheThreads),
           layout_.heads, 1, kernels::kCacheThreads, values);
  }

  void expand() {
    kernels::Expand a{};
    a.cache = view_;
    a.tokens = static_cast<int>(problem_.keyLength);
    a.blocks = static_cast<int>(layout_.headBlocks);
    a.channels = static_cast<int>(layout_.channels);
    a.tiles = static_cast<int>(layout_.keyTiles);
    a.order = route_.operands.tokenOrder;
    a.codes = scratch(layout_.key);
    a.scales = scratch(layout_.keyScales);
    int64_t threads = kernels::kCacheThreads, tiles = layout_.keyTiles;
    launch(kernelName("expand_keys", recipeOf(problem_.cacheFormat)),
           ceilDivide(tiles * layout_.headBlocks * kernels::kTileRows, threads), layout_.heads, 1, threads, a);
    a.codes = scratch(layout_.value);
    a.scales = scratch(layout_.valueScales);
    launch(kernelName("expand_values", recipeOf(problem_.cacheFormat)), ceilDivide(tiles * 2 * layout_.channels, threads),
           layout_.heads, 1, threads, a);
  }

  void quantiseValues() {
    kernels::QuantiseValues a{};
    a.from = operands_.value;
    a.codes = scratch(layout_.value);
    a.scales = scratch(layout_.valueScales);
    a.tokens = static_cast<int>(problem_.keyLength);
    a.size = static_cast<int>(problem_.valueHeadSize);
    a.channels = static_cast<int>(layout_.channels);
    a.tiles = static_cast<int>(layout_.keyTiles);
    a.order = route_.operands.tokenOrder;
    launch(kernelName("quantise_values", problem_.precision), ceilDivide(layout_.keyTiles * 2 * layout_.channels, kernels::kQuantiseThreads),
           layout_.heads, 1, kernels::kQuantiseThreads, a);
  }

  kernels::Attend attendArguments() {
    kernels::Attend a{};
    a.query = scratch(layout_.query);
    a.queryScales = route_.operands.scaleBytes ? scratch(layout_.queryScales) : 0;
    a.key = scratch(layout_.key);
    a.keyScales = scratch(layout_.keyScales);
    a.value = scratch(layout_.value);
    a.valueScales = scratch(layout_.valueScales);
    a.out = operands_.out;
    a.partial = scratch(layout_.partial);
    a.partialSums = scratch(layout_.partialSums);
    a.masks = masksOf(problem_, operands_);
    a.headBlocks = static_cast<int>(layout_.headBlocks);
    a.valueSize = static_cast<int>(problem_.valueHeadSize);
    a.channels = static_cast<int>(layout_.channels);
    a.queryTiles = static_cast<int>(layout_.queryTiles);
    a.keyTiles = static_cast<int>(layout_.keyTiles);
    a.splits = static_cast<int>(layout_.splits);
    a.tilesPerSplit = static_cast<int>(layout_.tilesPerSplit);
    a.weightCarry = problem_.precision == cpu::Precision::kMxfp4 ? 15 : 0;
    return a;
  }

  template <typename Arguments>
  void launchAttend(const Arguments& arguments) {
    launch(route_.attend, ceilDivide(layout_.rows, route_.rowsPerGroup), layout_.heads,
           layout_.splits * ceilDivide(layout_.channels, route_.channelsPerGroup), route_.threads, arguments);
  }

  void combine() {
    kernels::Combine a{};
    a.partial = scratch(layout_.partial);
    a.partialSums = scratch(layout_.partialSums);
    a.out = operands_.out;
    a.masks = masksOf(problem_, operands_);
    a.valueSize = static_cast<int>(problem_.valueHeadSize);
    a.splits = static_cast<int>(layout_.splits);
    a.rows = static_cast<int>(layout_.rows);
    launch("combine", layout_.rows, layout_.heads, 1, kernels::kCombineThreads, a);
  }

  const Problem& problem_;
  const Operands& operands_;
  Route route_;
  Layout layout_;
  kernels::CacheView view_;
  Plan plan_;
};

}  // namespace

size_t panelBytes(const CacheShape& shape) {
  int64_t blocks = blocksOf(shape.headSize) * kernels::kBlock + blocksOf(shape.valueHeadSize) * kernels::kBlock;
  int64_t blockBytes = kernels::kBlock * cacheBits(shape.format) / 8 + (shape.format == cpu::Precision::kFloat32 ? 0 : 1);
  return static_cast<size_t>(shape.batch * shape.kvHeads * blocks * blockBytes);
}

size_t tailBytes(const CacheShape& shape) {
  return static_cast<size_t>(shape.batch * shape.kvHeads * kPanelTokens * shape.valueHeadSize) * sizeof(float);
}

std::string unsupported(const Problem& problem, const Target& target) {
  if (problem.headSize > cpu::kLargestHeadSize || problem.valueHeadSize > cpu::kLargestHeadSize) {
    return "heads of more than " + std::to_string(cpu::kLargestHeadSize) + " elements";
  }
  if (problem.batch * problem.kvHeads > kMostGroups) return "more than 65535 key/value heads in a batch";
  if (problem.keyLength >= kernels::kNoWindow) return "more than 2^30 keys";
  if (problem.cache && problem.precision == kMxfp6Direct) return "mxfp6-direct with a cache";
  if (problem.cache && recipeOf(problem.cacheFormat) != problem.precision &&
      !(isByteFormat(recipeOf(problem.cacheFormat)) && isByteFormat(problem.precision))) {
    return std::string(recipeName(problem.precision)) + " on a cache in " + recipeName(recipeOf(problem.cacheFormat));
  }
  Layout layout(problem, target, routeOf(problem, target));
  if (layout.rows >= std::numeric_limits<int32_t>::max() / 2) return "more than 2^30 queries of a key/value head";
  return "";
}

size_t scratchBytes(const Problem& problem, const Target& target) {
  return Layout(problem, target, routeOf(problem, target)).bytes;
}

Plan makePlan(const Problem& problem, const Target& target, const Operands& operands) {
  return Planner(problem, target, operands).plan();
}

Plan makeReadPlan(const CacheShape& shape, int64_t length, Address panels, Address tail, Address keys, Address values) {
  Plan plan;
  int format = static_cast<int>(shape.format);
  plan.defines = {define("MXATTN_RECIPE", format), define("MXATTN_CACHE_RECIPE", format), "-DMXATTN_NO_MATRIX"};
  kernels::ReadCache a{};
  a.cache = viewOf(shape, panels, tail);
  a.keys = keys;
  a.values = values;
  a.tokens = static_cast<int>(length);
  a.size = static_cast<int>(shape.headSize);
  a.norm = rotationNorm(shape.format, shape.headSize);
  int64_t heads = shape.batch * shape.kvHeads;
  if (length > 0 && heads > 0) {
    plan.launches.push_back(launchOf(std::string("read_cache_") + recipeName(shape.format), length, heads, 1,
                                     kernels::kDecodeThreads, a));
  }
  return plan;
}

}  // namespace mxattn::hip
