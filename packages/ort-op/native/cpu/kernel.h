// Attention on the CPU, tiled: no matrix of all scores exists at any time. Compiled once per instruction set; the
// including file opens a namespace and defines kLanes, the register tiles and dot4.
//
// Everything here must be inlined or in that namespace: a function template of the standard library that is
// emitted from here could be the copy that the linker keeps for the whole addon, with instructions that the
// processor may not have. So no containers.
//
// A unit of work is one block of query rows of one key/value head. The query heads of a group share their
// key/value head and, in BHSD order, their rows follow one another, so that for the kernel the heads of a group
// are just more rows: row r is query r % queryLength of head r / queryLength of the group.
//
// Keys come in tiles of kTileKeys. For each tile: scores (in log2 units) -> masks -> softmax -> output. The
// softmax keeps a reference and a sum per row; how it does so, and in what the products are formed, is what separates the
// engines: FloatEngine (float_engine.h) and BlockScaledEngine (fused_softmax.h).

constexpr int kTileVectors = kTileKeys / kLanes;
constexpr int kTileBlocks = kTileKeys / kBlock;
static_assert(kTileBlocks == 2);
constexpr int kRowBlock = 96;  // whole register tiles of 4 and of 6 rows
constexpr float kLog2e = 1.44269504f;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kLargest = std::numeric_limits<float>::max();

MXATTN_INLINE int64_t ceilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Memory handed out from one buffer in 64-byte steps. With a null base it only counts.
class Arena {
 public:
  explicit Arena(uint8_t* base) : base_(base) {}

  template <typename T>
  T* take(int64_t count) {
    uint8_t* at = base_ ? base_ + used_ : nullptr;
    used_ += (count * sizeof(T) + 63) / 64 * 64;
    return reinterpret_cast<T*>(at);
  }

  size_t used() const { return used_; }

 private:
  uint8_t* base_;
  size_t used_ = 0;
};

// Calls task(size, row) for rows [0, count) in register tiles of Rows rows, the rest in smaller ones. `size` carries the
// number as a constant.
template <int Rows, typename Task>
MXATTN_INLINE void forRowTiles(int count, const Task& task, int row = 0) {
  for (; row + Rows <= count; row += Rows) task(std::integral_constant<int, Rows>{}, row);
  // Four rows are a usual group of query heads.
  if constexpr (Rows > 1) forRowTiles<(Rows > 4 ? 4 : Rows / 2)>(count, task, row);
}

// The rows of one unit of work.
struct Rows {
  int64_t batch;
  int64_t kvHead;
  int64_t first;  // within the group's rows
  int count;

  int64_t query(const Problem& problem, int row) const { return (first + row) % problem.queryLength; }
  int64_t head(const Problem& problem, int row) const {
    return kvHead * (problem.heads / problem.kvHeads) + (first + row) / problem.queryLength;
  }
};

// Keys [begin, end) that one query may see by position.
struct KeyRange {
  int64_t begin;
  int64_t end;
};

MXATTN_INLINE KeyRange visibleKeys(const Problem& problem, int64_t query) {
  int64_t position = query + problem.keyLength - problem.queryLength;
  KeyRange range{0, problem.keyLength};
  if (problem.causal) range.end = std::min(range.end, position + 1);
  if (problem.windowRight >= 0) range.end = std::min(range.end, position + problem.windowRight + 1);
  if (problem.windowLeft >= 0) range.begin = std::max(range.begin, position - problem.windowLeft);
  range.end = std::max(range.end, range.begin);
  return range;
}

// The bias of one row at kLanes keys, in log2 units. A finite bias stays finite, so that a row whose keys all
// carry the lowest float attends to all of them alike, as softmax of such scores does.
MXATTN_INLINE Floats biasAt(const float* bias, int64_t keys) {
  Floats b{};
  if (keys >= kLanes) {
    b = load<Floats>(bias);
  } else {
    for (int64_t j = 0; j < keys; j++) b[j] = bias[j];
  }
  Floats scaled = maximum(b * kLog2e, splat(-kLargest));
  return b == -kInfinity ? b : scaled;
}

// Softcap, bias and masks on the scores of one row in one tile.
MXATTN_INLINE void maskScores(const Problem& problem, const Rows& rows, int row, int64_t firstKey, float* scores) {
  int64_t query = rows.query(problem, row);
  int64_t head = rows.head(problem, row);
  if (problem.softcap > 0) {
    float cap = problem.softcap * kLog2e;
    for (int v = 0; v < kTileVectors; v++) {
      Floats s = load<Floats>(scores + v * kLanes);
      store(scores + v * kLanes, cap * tanh(s / cap));
    }
  }
  if (problem.bias) {
    const float* bias = problem.bias + rows.batch * problem.biasBatchStride + head * problem.biasHeadStride +
                        query * problem.biasQueryStride;
    if (problem.biasKeyStride == 0) {
      // The same for every key changes no softmax, unless it is minus infinity or NaN, or there is a sink beside the keys.
      // Adding it all the same would cost digits of the scores.
      if (*bias == -kInfinity) {
        for (int v = 0; v < kTileVectors; v++) store(scores + v * kLanes, splat(-kInfinity));
      } else if (problem.sinks || std::isnan(*bias)) {
        for (int v = 0; v < kTileVectors; v++) {
          store(scores + v * kLanes, load<Floats>(scores + v * kLanes) + *bias * kLog2e);
        }
      }
    } else {
      for (int v = 0; v < kTileVectors; v++) {
        int64_t key = firstKey + v * kLanes;
        if (key >= problem.keyLength) break;
        Floats s = load<Floats>(scores + v * kLanes) + biasAt(bias + key, problem.keyLength - key);
        store(scores + v * kLanes, s);
      }
    }
  }
  KeyRange visible = visibleKeys(problem, query);
  if (visible.begin > firstKey || visible.end < firstKey + kTileKeys) {
    auto begin = static_cast<int32_t>(std::clamp<int64_t>(visible.begin - firstKey, 0, kTileKeys));
    auto end = static_cast<int32_t>(std::clamp<int64_t>(visible.end - firstKey, 0, kTileKeys));
    for (int v = 0; v < kTileVectors; v++) {
      Ints key = iota(LaneSequence{}) + v * kLanes;
      Floats s = load<Floats>(scores + v * kLanes);
      store(scores + v * kLanes, (key >= begin) & (key < end) ? s : splat(-kInfinity));
    }
  }
}

MXATTN_INLINE Floats largestScore(const float* scores) {
  Floats top = load<Floats>(scores);
  for (int v = 1; v < kTileVectors; v++) top = maximum(load<Floats>(scores + v * kLanes), top);
  return maximumOfLanes(top);
}

MXATTN_INLINE bool anyNaN(const float* scores) {
  Ints nan{};
  for (int v = 0; v < kTileVectors; v++) {
    Floats s = load<Floats>(scores + v * kLanes);
    nan |= (s != s);
  }
  return anyLane(nan);
}

// What the softmax knows of the rows of a unit.
struct RowState {
  float* scores;     // [kRowBlock][kTileKeys], log2 units
  float* reference;  // what is subtracted from the scores; minus infinity before the first visible key
  float* sum;        // [kRowBlock][kLanes], to be added up
  float* out;        // [kRowBlock][padded value head size], not yet divided by the sum
  int64_t outSize;   // the padded value head size

  // Takes a higher reference; what was accumulated shrinks.
  void raise(int row, float to) const {
    float factor = std::exp2(reference[row] - to);
    store(sum + row * kLanes, load<Floats>(sum + row * kLanes) * factor);
    for (int64_t c = 0; c < outSize; c += kLanes) {
      store(out + row * outSize + c, load<Floats>(out + row * outSize + c) * factor);
    }
    reference[row] = to;
  }

  // The first reference, or a higher one.
  void setReference(int row, float to) const {
    if (reference[row] == -kInfinity) {
      reference[row] = to;
    } else {
      raise(row, to);
    }
  }

  static RowState take(const Problem& problem, Arena& arena) {
    RowState state;
    state.outSize = ceilDivide(problem.valueHeadSize, kLanes) * kLanes;
    state.scores = arena.take<float>(kRowBlock * kTileKeys);
    state.reference = arena.take<float>(kRowBlock);
    state.sum = arena.take<float>(kRowBlock * kLanes);
    state.out = arena.take<float>(kRowBlock * state.outSize);
    return state;
  }
};

#include "cpu/bias_tiles.h"
#include "cpu/block_align.h"
#include "cpu/e4m3.h"
#include "cpu/operand_tiles.h"
#include "cpu/cache_tiles.h"
#include "cpu/plain_tiles.h"
#include "cpu/cache.h"
#include "cpu/schraudolph.h"
#include "cpu/online_softmax.h"
#include "cpu/e4m3_softmax.h"
#include "cpu/float_engine.h"
#include "cpu/query_rows.h"
#include "cpu/fused_softmax.h"

// Takes the tiles of keys in [range.begin, range.end), a range of whole tiles, into the state of a unit of work.
template <typename Engine>
void attendKeys(const Engine& engine, const Problem& problem, const BiasTiles& biasTiles, const Rows& rows,
                KeyRange range, RowState& state, typename Engine::Unit& unit) {
  // Keys that some row sees, and keys that all rows see.
  KeyRange visible{problem.keyLength, 0}, shared{0, problem.keyLength};
  for (int row = 0; row < rows.count; row++) {
    state.reference[row] = -kInfinity;
    KeyRange sees = visibleKeys(problem, rows.query(problem, row));
    shared.begin = std::max(shared.begin, sees.begin);
    shared.end = std::min(shared.end, sees.end);
    if (sees.begin == sees.end) continue;
    visible.begin = std::min(visible.begin, sees.begin);
    visible.end = std::max(visible.end, sees.end);
  }
  std::memset(state.sum, 0, rows.count * kLanes * sizeof(float));
  std::memset(state.out, 0, rows.count * state.outSize * sizeof(float));
  bool weighty[kRowBlock];
  if (biasTiles.known()) {
    for (int row = 0; row < rows.count; row++) weighty[row] = biasTiles.weighty(problem, rows, row);
  }
  auto scoreTile = [&](int64_t key) {
    BiasUse use{true, problem.bias != nullptr};
    if (biasTiles.known()) use = biasTiles.use(rows, key / kTileKeys, weighty);
    if (!use.visible) return false;
    engine.scores(unit, rows, key, state);
    if (problem.softcap > 0 || use.added || key < shared.begin || key + kTileKeys > shared.end) {
      for (int row = 0; row < rows.count; row++) {
        maskScores(problem, rows, row, key, state.scores + row * kTileKeys);
      }
    }
    return true;
  };
  int64_t first = visible.begin / kTileKeys * kTileKeys;
  // The reference is that of the first tile wherever the range begins. NaN is left to the range that holds the tile.
  if (range.begin > first && first < visible.end && scoreTile(first)) {
    for (int row = 0; row < rows.count; row++) {
      float top = largestScore(state.scores + row * kTileKeys)[0];
      if (top > -kInfinity && top < kInfinity) state.reference[row] = top;
    }
  }
  int64_t end = std::min(visible.end, range.end);
  for (int64_t key = std::max(first, range.begin); key < end; key += kTileKeys) {
    if (!scoreTile(key)) continue;
    engine.softmax(unit, rows, key, state);
    if (engine.full(unit)) engine.accumulate(unit, rows, state);
  }
  if (unit.pending > 0) engine.accumulate(unit, rows, state);
}

// Divides what was accumulated by the sums.
MXATTN_INLINE void writeRows(const Problem& problem, const Rows& rows, const RowState& state) {
  int64_t group = problem.heads / problem.kvHeads;
  int64_t outRow = ((rows.batch * problem.kvHeads + rows.kvHead) * group) * problem.queryLength + rows.first;
  for (int row = 0; row < rows.count; row++) {
    float sum = sumOfLanes(load<Floats>(state.sum + row * kLanes))[0];
    if (problem.sinks && state.reference[row] > -kInfinity) {
      float sink = problem.sinks[rows.head(problem, row)];
      sum += std::exp2(sink * kLog2e - state.reference[row]);
    }
    // No visible key: zeros. A NaN in a score makes the reference NaN, and so the whole row.
    float factor = state.reference[row] == -kInfinity ? 0.f : 1.f / sum;
    if (std::isnan(state.reference[row])) factor = kNaN;
    const float* from = state.out + row * state.outSize;
    float* to = problem.out + (outRow + row) * problem.valueHeadSize;
    for (int64_t c = 0; c < problem.valueHeadSize; c++) to[c] = from[c] * factor;
  }
}

// Adds the rows of another state to those of `state`, under the higher of both references.
MXATTN_INLINE void addRows(int count, const RowState& other, RowState& state) {
  for (int row = 0; row < count; row++) {
    float reference = other.reference[row];
    if (reference == -kInfinity) continue;
    if (state.reference[row] == -kInfinity) state.reference[row] = reference;
    if (reference > state.reference[row]) state.raise(row, reference);
    // NaN if either is.
    float factor = std::exp2(reference - state.reference[row]);
    if (std::isnan(factor)) state.reference[row] = kNaN;
    float* sum = state.sum + row * kLanes;
    store(sum, load<Floats>(sum) + load<Floats>(other.sum + row * kLanes) * factor);
    for (int64_t c = row * state.outSize; c < (row + 1) * state.outSize; c += kLanes) {
      store(state.out + c, load<Floats>(state.out + c) + load<Floats>(other.out + c) * factor);
    }
  }
}

// Where there are few units of work and many keys, as in decoding with few heads, units are split by keys, so that all
// threads have work: so many units at least, of so many keys at least.
constexpr int64_t kFewUnits = 8;
constexpr int64_t kPartKeys = 16 * kTileKeys;

template <typename Engine>
void attend(const Problem& problem, const Parallel& parallel, Scratch& scratch) {
  int64_t groupRows = problem.heads / problem.kvHeads * problem.queryLength;
  int64_t rowBlocks = ceilDivide(groupRows, kRowBlock);
  Arena packedSize(nullptr);
  Engine sizing(problem, packedSize);
  Scratch::Lease packed(scratch, packedSize.used());
  Arena packedMemory(packed.data());
  Engine engine(problem, packedMemory);
  engine.pack(parallel);
  Scratch::Lease biasMemory(scratch, BiasTiles::bytes(problem));
  BiasTiles biasTiles(problem, biasMemory.data(), parallel);

  int64_t units = problem.batch * problem.kvHeads * rowBlocks;
  int64_t parts = std::clamp<int64_t>(problem.keyLength / kPartKeys, 1, ceilDivide(kFewUnits, units));
  int64_t partKeys = ceilDivide(ceilDivide(problem.keyLength, kTileKeys), parts) * kTileKeys;
  auto rowsOf = [&](int64_t unit) {
    int64_t block = unit % rowBlocks, head = unit / rowBlocks;
    return Rows{head / problem.kvHeads, head % problem.kvHeads, block * kRowBlock,
                static_cast<int>(std::min<int64_t>(kRowBlock, groupRows - block * kRowBlock))};
  };
  Arena stateSize(nullptr), unitSize(nullptr);
  RowState::take(problem, stateSize);
  sizing.begin(Rows{0, 0, 0, 0}, unitSize);
  size_t stateBytes = stateSize.used();
  Scratch::Lease states(scratch, parts > 1 ? units * parts * stateBytes : 0);
  auto stateOf = [&](int64_t index) {
    Arena arena(states.data() + index * stateBytes);
    return RowState::take(problem, arena);
  };
  parallel.each(units * parts, [&](size_t index) {
    Rows rows = rowsOf(index / parts);
    int64_t first = index % parts * partKeys;
    Scratch::Lease memory(scratch, unitSize.used() + (parts > 1 ? 0 : stateBytes));
    Arena arena(memory.data());
    RowState state = parts > 1 ? stateOf(index) : RowState::take(problem, arena);
    typename Engine::Unit unit = engine.begin(rows, arena);
    attendKeys(engine, problem, biasTiles, rows, KeyRange{first, first + partKeys}, state, unit);
    if (parts == 1) writeRows(problem, rows, state);
  });
  if (parts == 1) return;
  parallel.each(units, [&](size_t index) {
    Rows rows = rowsOf(index);
    RowState state = stateOf(index * parts);
    for (int64_t part = 1; part < parts; part++) addRows(rows.count, stateOf(index * parts + part), state);
    writeRows(problem, rows, state);
  });
}

int64_t cacheTileBytes(const Problem& problem) { return Cache(problem).tileBytes(); }

void append(const Problem& problem, const Parallel& parallel, Scratch&) { Cache(problem).append(parallel); }

void readKeys(const Problem& problem, Scratch& scratch, float* out) {
  Scratch::Lease room(scratch, kTileKeys * problem.headSize * sizeof(float));
  Cache(problem).readKeys(reinterpret_cast<float*>(room.data()), out);
}

void readValues(const Problem& problem, Scratch& scratch, float* out) {
  Scratch::Lease room(scratch, kTileKeys * ceilDivide(problem.valueHeadSize, kLanes) * kLanes * sizeof(float));
  Cache(problem).readValues(reinterpret_cast<float*>(room.data()), out);
}

// The kernel of a build, with its engines for integer products and for those of E4M3 numbers.
template <typename Integers, typename SmallFloats = FloatEngine<E4m3Softmax>>
void attendWith(const Problem& problem, const Parallel& parallel, Scratch& scratch) {
  if (problem.batch == 0 || problem.queryLength == 0) return;
  if (problem.precision == Precision::kFloat32) {
    attend<FloatEngine<OnlineSoftmax>>(problem, parallel, scratch);
  } else if (problem.precision == Precision::kMxfp8) {
    attend<SmallFloats>(problem, parallel, scratch);
  } else {
    attend<Integers>(problem, parallel, scratch);
  }
}
