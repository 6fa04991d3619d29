// Attention with matrix instructions. Scores are computed transposed, keys by queries, so that each lane has scores, weights
// and outputs of one query row, which it shares with one other lane: weights are operands of the second product where the first
// left their scores, with the tokens of the values stored in that order.
//
// A workgroup has kWaves waves of kRows query rows of one key/value head, and 64 keys and their values at a time in shared
// memory, twice where there is room, so that the next tile arrives while one is at work.
#pragma once

#if (defined(MXATTN_MATRIX_I8) || defined(MXATTN_MATRIX_SCALED)) && !defined(MXATTN_NO_MATRIX)

namespace mxattn::hip::kernels {

// Copies kBytes through registers.
template <int kBytes, int kThreads>
struct Staged {
  static constexpr int kVectors = kBytes / 16;
  static constexpr int kEach = (kVectors + kThreads - 1) / kThreads;
  static_assert(kBytes % 16 == 0);
  Words4 vectors[kEach];

  MXATTN_INLINE void load(const Byte* from) {
    MXATTN_UNROLL
    for (int i = 0; i < kEach; i++) {
      int vector = threadIndex() + i * kThreads;
      if (vector < kVectors) vectors[i] = words(from + 16 * vector);
    }
  }

  MXATTN_INLINE void store(Byte* to) const {
    MXATTN_UNROLL
    for (int i = 0; i < kEach; i++) {
      int vector = threadIndex() + i * kThreads;
      if (vector < kVectors) *reinterpret_cast<Words4*>(to + 16 * vector) = vectors[i];
    }
  }
};

template <typename Engine, int kHeadBlocks>
struct SharedTile {
  static constexpr int kThreads = Engine::kWave * Engine::kWaves;
  static constexpr int kKeyBlocks = kHeadBlocks * kTileRows;
  static constexpr int kValueBlocks = 2 * Engine::kChannels;
  static constexpr int kKeyBytes = kKeyBlocks * Engine::kBlockBytes, kKeyScaleBytes = kKeyBlocks * Engine::kScaleBytes;
  static constexpr int kValueBytes = kValueBlocks * Engine::kBlockBytes,
                       kValueScaleBytes = kValueBlocks * Engine::kScaleBytes;

  alignas(16) Byte keys[kKeyBytes];
  alignas(16) Byte values[kValueBytes];
  alignas(16) Byte keyScales[kKeyScaleBytes];
  alignas(16) Byte valueScales[kValueScaleBytes];

  // A tile on its way.
  struct Registers {
    Staged<kKeyBytes, kThreads> keys;
    Staged<kValueBytes, kThreads> values;
    Staged<kKeyScaleBytes, kThreads> keyScales;
    Staged<kValueScaleBytes, kThreads> valueScales;

    MXATTN_INLINE void load(const Attend& a, long long tile) {
      keys.load(at<const Byte>(a.key) + tile * kKeyBytes);
      values.load(at<const Byte>(a.value) + tile * kValueBytes);
      keyScales.load(at<const Byte>(a.keyScales) + tile * kKeyScaleBytes);
      valueScales.load(at<const Byte>(a.valueScales) + tile * kValueScaleBytes);
    }
  };

  MXATTN_INLINE void store(const Registers& from) {
    from.keys.store(keys);
    from.values.store(values);
    from.keyScales.store(keyScales);
    from.valueScales.store(valueScales);
  }
};

// The part of a row that a lane has of a tile of scores.
template <typename Engine>
struct HalfRow {
  static constexpr int kScores = Engine::kScores;
  int half;

  MXATTN_INLINE static constexpr int keyOf(int i) {
    return i / Engine::kResults * Engine::kRows + productRow(kMatrixOrder, i % Engine::kResults, 0);
  }
  MXATTN_INLINE int firstKey() const { return productRow(kMatrixOrder, 0, half); }
  MXATTN_INLINE float largestOfRow(float x) const {
    return maximum(x, fromBits(static_cast<unsigned>(exchanged(static_cast<int>(bitsOf(x)), Engine::kRows))));
  }
};

template <typename Weights, int kEach>
MXATTN_INLINE void takeWeights(const float (&affine)[2 * kEach], typename Weights::Weight (&weight)[2 * kEach],
                               typename Weights::Weight (&top)[2]) {
  MXATTN_UNROLL
  for (int b = 0; b < 2; b++) {
    MXATTN_UNROLL
    for (int i = 0; i < kEach; i++) weight[b * kEach + i] = Weights::of(affine[b * kEach + i]);
    top[b] = largestOf<kEach>(weight + b * kEach);
  }
}

template <typename Engine, int kHeadBlocks, bool kAdjusted>
MXATTN_INLINE void attendMatrix(const Attend& a) {
  using Softmax = typename Engine::Softmax;
  using Tile = SharedTile<Engine, kHeadBlocks>;
  // Of 64 KiB that every architecture has.
  constexpr int kBuffers = 2 * sizeof(Tile) <= 65536 ? 2 : 1;
  constexpr int kGroupRows = Engine::kWaves * Engine::kRows;
  MXATTN_SHARED Tile shared[kBuffers];

  int head = groupY(), split = groupZ(), rows = groupRows(a.masks);
  int wave = threadIndex() / Engine::kWave, laneOfWave = threadIndex() % Engine::kWave;
  int firstRow = groupX() * kGroupRows, index = firstRow + wave * Engine::kRows + laneOfWave % Engine::kRows;
  // Rows past the last compute what the last one does.
  int known = smaller(index, rows - 1);
  Row row = rowOf(a.masks, head, known);
  TileRange tiles = tilesOf(a, firstRow, kGroupRows, split);
  long long queryAt = ((static_cast<long long>(head) * a.queryTiles + known / kTileRows) * kHeadBlocks) * kTileRows +
                      known % kTileRows;
  Engine engine(at<const Byte>(a.query) + queryAt * Engine::kBlockBytes,
                at<const Byte>(a.queryScales) + queryAt * Engine::kScaleBytes, laneOfWave);
  HalfRow<Engine> lanes{engine.half};
  RowState<Softmax> state{-infinity()};
  long long headTiles = static_cast<long long>(head) * a.keyTiles;

  typename Tile::Registers staged;
  int current = 0;
  if (tiles.first < tiles.end) {
    staged.load(a, headTiles + tiles.first);
    shared[0].store(staged);
  }
  barrier();
  for (int tile = tiles.first; tile < tiles.end;) {
    int next = larger(tile + 1, tiles.begin);
    if (next < tiles.end) staged.load(a, headTiles + next);
    const Tile& work = shared[current];
    bool masked = tiles.masked(a.masks, tile), redo = masked || anyLane(!state.started());
    float score[Engine::kScores];
    // Weights of two blocks of 32 keys, and the largest that this lane has of each.
    constexpr int kEach = Engine::kScores / 2;
    typename Softmax::Weight weight[2 * kEach], top[2];
    if (!redo) {
      engine.scores(work.keys, work.keyScales, true, score);
      takeWeights<Softmax, kEach>(score, weight, top);
      redo = anyLane(!(larger(top[0], top[1]) <= Softmax::kMost));
    }
    if (redo) {
      engine.scores(work.keys, work.keyScales, false, score);
      MXATTN_UNROLL
      for (int i = 0; i < Engine::kScores; i++) score[i] *= 1.f / Softmax::kUnits;
      float factor = affineValues<kAdjusted>(lanes, score, state, masked, a.masks, row, tile * kTileRows);
      if (anyLane(factor != 1.f)) engine.rescale(factor);
      engine.setSeed(state.seed());
      takeWeights<Softmax, kEach>(score, weight, top);
    }
    if (tile >= tiles.begin) engine.accumulate(weight, top, a.weightCarry, work.values, work.valueScales);
    if (kBuffers == 1) barrier();
    if (next < tiles.end) {
      current = kBuffers == 1 ? 0 : 1 - current;
      shared[current].store(staged);
    }
    barrier();
    tile = next;
  }

  // Before any lane leaves: sums are exchanged.
  float sum = engine.totalWeight();
  if (index >= rows) return;
  RowOutput output(a, head, index, split, row, state.reference, sum);
  MXATTN_UNROLL
  for (int i = 0; i < Engine::kOutputs; i++) {
    int channel = lanes.firstKey() + lanes.keyOf(i);
    if (channel < a.valueSize) output.out[channel] = engine.output(i) * output.factor;
  }
  if (a.splits > 1 && engine.half == 0) RowOutput::putSums(a, head, index, split, state.reference, sum);
}

// The kernel without soft cap and bias, and that with them.
#define MXATTN_ATTEND_MATRIX(name, recipe, head, values)                                                              \
  MXATTN_KERNEL(attend_matrix_##name##_##head##x##values,                                                             \
                (MatrixEngine<recipe, head, values>::kWave * MatrixEngine<recipe, head, values>::kWaves), Attend) {   \
    attendMatrix<MatrixEngine<recipe, head, values>, head, false>(a);                                                 \
  }                                                                                                                   \
  MXATTN_KERNEL(attend_matrix_##name##_##head##x##values##_adjusted,                                                  \
                (MatrixEngine<recipe, head, values>::kWave * MatrixEngine<recipe, head, values>::kWaves), Attend) {   \
    attendMatrix<MatrixEngine<recipe, head, values>, head, true>(a);                                                  \
  }
#define MXATTN_MXFP6(head, values) MXATTN_ATTEND_MATRIX(mxfp6, kMxfp6, head, values)
#define MXATTN_MXFP6_DIRECT(head, values) MXATTN_ATTEND_MATRIX(mxfp6_direct, kMxfp6Direct, head, values)
#define MXATTN_MXFP4(head, values) MXATTN_ATTEND_MATRIX(mxfp4, kMxfp4, head, values)
#define MXATTN_MXFP8(head, values) MXATTN_ATTEND_MATRIX(mxfp8, kMxfp8, head, values)

#if defined(MXATTN_HEAD_BLOCKS)
#define MXATTN_COMPILED_SIZES(size) size(MXATTN_HEAD_BLOCKS, MXATTN_VALUE_BLOCKS)
#else
#define MXATTN_COMPILED_SIZES(size) MXATTN_SIZES(size)
#endif

#if MXATTN_COMPILES(1)
MXATTN_COMPILED_SIZES(MXATTN_MXFP6)
#endif
#if MXATTN_COMPILES(2)
MXATTN_COMPILED_SIZES(MXATTN_MXFP4)
#endif
#if MXATTN_COMPILES(3) && defined(MXATTN_MATRIX_SCALED)
MXATTN_COMPILED_SIZES(MXATTN_MXFP8)
#endif
#if MXATTN_COMPILES(10) && defined(MXATTN_MATRIX_SCALED)
MXATTN_COMPILED_SIZES(MXATTN_MXFP6_DIRECT)
#endif

}  // namespace mxattn::hip::kernels

#endif
