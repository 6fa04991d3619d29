// Attention without matrix instructions, for every architecture, precision and size. A lane has a query row and kChannels output
// channels of it: nothing is exchanged, and no shared memory used. Keys and values are the same for all lanes, which reads
// them by broadcast.
//
// Registers of a lane: 64 scores, kChannels outputs, one block of the query.
#pragma once

namespace mxattn::hip::kernels {

struct WholeRow {
  static constexpr int kScores = kTileRows;
  MXATTN_INLINE static constexpr int keyOf(int i) { return i; }
  MXATTN_INLINE int firstKey() const { return 0; }
  MXATTN_INLINE float largestOfRow(float x) const { return x; }
};

MXATTN_INLINE Floats4 floats(const Byte* from) { return *reinterpret_cast<const Floats4*>(from); }

MXATTN_INLINE int dot16(const Words4& a, const Words4& b, int c) {
  MXATTN_UNROLL
  for (int w = 0; w < 4; w++) c = dot4(static_cast<int>(a.word[w]), static_cast<int>(b.word[w]), c);
  return c;
}

// Products of bytes.
struct ByteProducts {
  using Softmax = Bf16Weights;
  static constexpr int kBlockBytes = 32;

  MXATTN_INLINE static void scores(const Byte* query, float queryScale, const Byte* keys, const float* keyScales,
                                   float (&score)[kTileRows]) {
    Words4 low = words(query), high = words(query + 16);
    int start = 0;
    MXATTN_UNROLL
    for (int k = 0; k < kTileRows; k++) {
      if (k % 4 == 0) beginUniform(start);
      const Byte* key = keys + (start + k * kBlockBytes);
      int product = dot16(high, words(key + 16), dot16(low, words(key), 0));
      score[k] = fma(static_cast<float>(product), keyScales[k] * queryScale, score[k]);
      finish(score[k]);
    }
  }

  struct Weights {
    unsigned codes[kTileRows / 4];
    float units[2];
  };

  // Returns their sum.
  MXATTN_INLINE static float weigh(const float (&affine)[kTileRows], int carry, Weights& weights) {
    float sum = 0;
    MXATTN_UNROLL
    for (int b = 0; b < 2; b++) {
      int rounded[kBlock];
      MXATTN_UNROLL
      for (int k = 0; k < kBlock; k++) rounded[k] = Bf16Weights::of(affine[b * kBlock + k]);
      WeightScale scale(bf16OfWeight(largestOf<kBlock>(rounded)), carry);
      weights.units[b] = scale.unit();
      integerWeights<kBlock>(rounded, scale.inverse(), weights.codes + b * 8);
      int total = 0;
      MXATTN_UNROLL
      for (int w = 0; w < 8; w++) total = dot4(static_cast<int>(weights.codes[b * 8 + w]), 0x01010101, total);
      sum = fma(static_cast<float>(total), weights.units[b], sum);
    }
    return sum;
  }

  MXATTN_INLINE static void accumulate(const Weights& weights, int block, const Byte* values, const float* valueScales,
                                       float* out) {
    Words4 low, high;
    MXATTN_UNROLL
    for (int w = 0; w < 4; w++) {
      low.word[w] = weights.codes[block * 8 + w];
      high.word[w] = weights.codes[block * 8 + 4 + w];
    }
    int start = 0;
    MXATTN_UNROLL
    for (int c = 0; c < kBlock; c++) {
      if (c % 4 == 0) beginUniform(start);
      const Byte* value = values + (start + c * kBlockBytes);
      int product = dot16(high, words(value + 16), dot16(low, words(value), 0));
      out[c] = fma(static_cast<float>(product), valueScales[c] * weights.units[block], out[c]);
      finish(out[c]);
    }
  }
};

// Products of floats.
struct FloatProducts {
  using Softmax = Bf16Weights;
  static constexpr int kBlockBytes = 128;

  MXATTN_INLINE static void scores(const Byte* query, float, const Byte* keys, const float*, float (&score)[kTileRows]) {
    for (int c = 0; c < kBlock; c += 4) {
      Floats4 q = floats(query + 4 * c);
      int start = 4 * c;
      MXATTN_UNROLL
      for (int k = 0; k < kTileRows; k++) {
        if (k % 8 == 0) beginUniform(start);
        Floats4 key = floats(keys + (start + k * kBlockBytes));
        MXATTN_UNROLL
        for (int i = 0; i < 4; i++) score[k] = fma(q.x[i], key.x[i], score[k]);
        finish(score[k]);
      }
    }
  }

  struct Weights {
    float values[kTileRows];
  };

  MXATTN_INLINE static void accumulate(const Weights& weights, int block, const Byte* values, const float*, float* out) {
    int start = 0;
    MXATTN_UNROLL
    for (int c = 0; c < kBlock; c++) {
      beginUniform(start);
      MXATTN_UNROLL
      for (int t = 0; t < kBlock; t += 4) {
        Floats4 value = floats(values + (start + c * kBlockBytes + 4 * t));
        MXATTN_UNROLL
        for (int i = 0; i < 4; i++) out[c] = fma(weights.values[block * kBlock + t + i], value.x[i], out[c]);
      }
      finish(out[c]);
    }
  }
};

// E4M3 weights of a fixed scale, as floats.
struct E4m3Products : FloatProducts {
  MXATTN_INLINE static float weigh(const float (&affine)[kTileRows], int, Weights& weights) {
    float sum = 0;
    constexpr ElementFormat format = elementFormat(kMxfp8, true);
    MXATTN_UNROLL
    for (int k = 0; k < kTileRows; k++) {
      weights.values[k] = rounded(floatOfWeight(Bf16Weights::of(affine[k])), format);
      sum += weights.values[k];
    }
    return sum;
  }
};

// E4M3 weights without a bf16 between, as floats.
struct DirectProducts : FloatProducts {
  using Softmax = E4m3Codes;

  MXATTN_INLINE static float weigh(const float (&affine)[kTileRows], int, Weights& weights) {
    float sum = 0;
    MXATTN_UNROLL
    for (int k = 0; k < kTileRows; k++) {
      weights.values[k] = floatOfE4m3(E4m3Codes::code(affine[k]));
      sum += weights.values[k];
    }
    return sum;
  }
};

template <typename Products>
MXATTN_INLINE float fusedStep(float (&score)[kTileRows], RowState<typename Products::Softmax>& state, bool masked,
                              const Attend& a, const Row& row, int firstKey, float& sum, typename Products::Weights& weights) {
  float factor = affineValues<true>(WholeRow{}, score, state, masked, a.masks, row, firstKey);
  sum = sum * factor + Products::weigh(score, a.weightCarry, weights);
  return factor;
}

// An online softmax of exact exponentials.
MXATTN_INLINE float exactStep(float (&score)[kTileRows], RowState<Bf16Weights>& state, bool masked, const Masks& masks,
                              const Row& row, int firstKey, float& sum, FloatProducts::Weights& weights) {
  float top = state.reference;
  bool nan = false;
  if (masked) maskScores<true>(score, masks, row, firstKey, [](int i) { return i; });
  MXATTN_UNROLL
  for (int k = 0; k < kTileRows; k++) {
    top = maximum(top, score[k]);
    nan |= isNaN(score[k]);
  }
  float before = state.reference, factor = 1;
  if (nan || isNaN(before)) {
    state.reference = notANumber();
  } else if (top > before) {
    state.reference = top;
    factor = before == -infinity() ? 1.f : exp2(before - top);
  }
  bool started = state.started();
  sum *= factor;
  MXATTN_UNROLL
  for (int k = 0; k < kTileRows; k++) {
    weights.values[k] = started ? exp2(score[k] - state.reference) : 0;
    sum += weights.values[k];
  }
  return factor;
}

template <typename Products, bool kFused>
MXATTN_INLINE void attendLanes(const Attend& a) {
#if defined(MXATTN_RDNA)
  constexpr int kChannels = kLaneChannelsRdna;
#else
  constexpr int kChannels = kLaneChannels;
#endif
  int head = groupY(), split = groupZ() % a.splits, firstChannel = groupZ() / a.splits * kChannels;
  int firstRow = groupX() * kTileRows, index = firstRow + threadIndex(), rows = groupRows(a.masks);
  Row row = rowOf(a.masks, head, smaller(index, rows - 1));
  TileRange tiles = tilesOf(a, firstRow, kTileRows, split);
  long long queryTile = static_cast<long long>(head) * a.queryTiles + groupX();

  float out[kChannels];
  MXATTN_UNROLL
  for (int c = 0; c < kChannels; c++) out[c] = 0;
  RowState<typename Products::Softmax> state{-infinity()};
  float sum = 0;

  for (int tile = kFused ? tiles.first : tiles.begin; tile < tiles.end; tile = larger(tile + 1, tiles.begin)) {
    bool masked = tiles.masked(a.masks, tile);
    float score[kTileRows];
    MXATTN_UNROLL
    for (int k = 0; k < kTileRows; k++) score[k] = 0;
    long long keyTile = static_cast<long long>(head) * a.keyTiles + tile;
    MXATTN_ROLLED
    for (int b = 0; b < a.headBlocks; b++) {
      long long queryAt = (queryTile * a.headBlocks + b) * kTileRows + threadIndex();
      long long keyAt = (keyTile * a.headBlocks + b) * kTileRows;
      float scale = a.queryScales ? at<const float>(a.queryScales)[queryAt] : 1.f;
      Products::scores(at<const Byte>(a.query) + queryAt * Products::kBlockBytes, scale,
                       at<const Byte>(a.key) + keyAt * Products::kBlockBytes, at<const float>(a.keyScales) + keyAt, score);
    }
    typename Products::Weights weights;
    float factor;
    if constexpr (kFused) {
      if (tile < tiles.begin) {
        affineValues<true>(WholeRow{}, score, state, masked, a.masks, row, tile * kTileRows);
        continue;
      }
      factor = fusedStep<Products>(score, state, masked, a, row, tile * kTileRows, sum, weights);
    } else {
      factor = exactStep(score, state, masked, a.masks, row, tile * kTileRows, sum, weights);
    }
    if (factor != 1) {
      MXATTN_UNROLL
      for (int c = 0; c < kChannels; c++) out[c] *= factor;
    }
    MXATTN_UNROLL
    for (int part = 0; part < kChannels / kBlock; part++) {
      int channel = firstChannel + part * kBlock;
      if (channel >= a.channels) continue;
      MXATTN_UNROLL
      for (int b = 0; b < 2; b++) {
        long long valueAt = (keyTile * 2 + b) * a.channels + channel;
        Products::accumulate(weights, b, at<const Byte>(a.value) + valueAt * Products::kBlockBytes,
                             at<const float>(a.valueScales) + valueAt, out + part * kBlock);
      }
    }
  }

  if (index >= rows) return;
  RowOutput output(a, head, index, split, row, state.reference, sum);
  MXATTN_UNROLL
  for (int c = 0; c < kChannels; c++) {
    if (firstChannel + c < a.valueSize) output.out[firstChannel + c] = out[c] * output.factor;
  }
  if (a.splits > 1 && firstChannel == 0) RowOutput::putSums(a, head, index, split, state.reference, sum);
}

#if !defined(MXATTN_HEAD_BLOCKS)
#if MXATTN_COMPILES(0)
MXATTN_KERNEL(attend_lanes_f32, kLaneThreads, Attend) { attendLanes<FloatProducts, false>(a); }
#endif
#if MXATTN_COMPILES(3)
MXATTN_KERNEL(attend_lanes_mxfp8, kLaneThreads, Attend) { attendLanes<E4m3Products, true>(a); }
#endif
#if MXATTN_COMPILES(10)
MXATTN_KERNEL(attend_lanes_mxfp6_direct, kLaneThreads, Attend) { attendLanes<DirectProducts, true>(a); }
#endif
#if MXATTN_COMPILES(1)
MXATTN_KERNEL(attend_lanes_mxfp6, kLaneThreads, Attend) { attendLanes<ByteProducts, true>(a); }
#endif
#if MXATTN_COMPILES(2)
MXATTN_KERNEL(attend_lanes_mxfp4, kLaneThreads, Attend) { attendLanes<ByteProducts, true>(a); }
#endif
#endif

}  // namespace mxattn::hip::kernels
