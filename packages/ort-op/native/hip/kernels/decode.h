// Attention of few query rows on a packed cache, read as it is: 4.25 or 6.25 bits an element. The rows, those of the query
// heads that share a key/value head, share each load. Workgroups share the keys of a row (see Attend::splits).
//
// A thread first has a key of the tile: its scores for all rows. Then the first threads have a row each, of which they keep the
// softmax. Then a thread has kDecodeChannels channels, and their products with the weights of all rows.
//
// Shared memory, bytes: queries 36 a block of the head and row, scores 260, weights 64 and softmax 24 a row; 12 KiB for 8 rows of
// 1024.
#pragma once

namespace mxattn::hip::kernels {

// What a row's softmax has found in a tile.
struct DecodedRow {
  float reference;
  // Of what has been accumulated so far.
  float factor;
  // Of the weights of each block.
  float unit[2];
  float inverse[2];
};

// By one thread.
MXATTN_INLINE void decodeSoftmax(const float* scores, int carry, RowState<Bf16Weights>& state, DecodedRow& row) {
  float top[2] = {-infinity(), -infinity()};
  int worst = 0;
  MXATTN_ROLLED
  for (int k = 0; k < kBlock; k++) {
    for (int b = 0; b < 2; b++) {
      float s = scores[b * kBlock + k];
      top[b] = maximum(top[b], s);
      worst = larger(worst, static_cast<int>(bitsOf(s) & 0x7fffffffu));
    }
  }
  row.factor = state.move(maximum(top[0], top[1]), worst > 0x7f800000);
  row.reference = state.reference;
  MXATTN_UNROLL
  for (int b = 0; b < 2; b++) {
    WeightScale scale(bf16OfWeight(Bf16Weights::of(state.affine(top[b]))), carry);
    row.unit[b] = scale.unit();
    row.inverse[b] = scale.inverse();
  }
}

template <int kRecipe, int kRows>
MXATTN_INLINE void decode(const Decode& d) {
  using Keys = CacheBlocks<kRecipe, false>;
  using Elements = ByteElements<kRecipe>;
  constexpr ElementFormat format = elementFormat(kRecipe, true);
  constexpr int kMostBlocks = 32;
  MXATTN_SHARED unsigned queries[kRows][kMostBlocks][8];
  MXATTN_SHARED float queryScales[kRows][kMostBlocks];
  // One more, so that the threads that have rows read different banks.
  MXATTN_SHARED float scores[kRows][kTileRows + 1];
  MXATTN_SHARED DecodedRow decoded[kRows];
  MXATTN_SHARED unsigned codes[kRows][kTileRows / 4];
  const Attend& a = d.attend;
  int head = groupY(), split = groupZ() % a.splits, rows = groupRows(a.masks);
  int firstRow = groupX() * kRows, thread = threadIndex();
  int firstChannel = groupZ() / a.splits * kDecodeThreads * kDecodeChannels;
  TileRange tiles = tilesOf(a, firstRow, kRows, split);

  MXATTN_ROLLED
  for (int i = thread; i < kRows * a.headBlocks * kBlock; i += kDecodeThreads) {
    int element = i % kBlock, block = i / kBlock % a.headBlocks, r = i / kBlock / a.headBlocks;
    int row = smaller(firstRow + r, rows - 1);
    long long place = ((static_cast<long long>(head) * a.queryTiles + row / kTileRows) * a.headBlocks + block) * kTileRows +
                      row % kTileRows;
    auto bytes = reinterpret_cast<Byte*>(queries[r][block]);
    bytes[Elements::byteOf(element)] = at<const Byte>(a.query)[place * kBlock + element];
    if (element == 0) queryScales[r][block] = at<const float>(a.queryScales)[place];
  }
  RowState<Bf16Weights> state{-infinity()};
  if (thread < kRows) decoded[thread].reference = state.reference;
  barrier();

  float sum[kRows], out[kRows][kDecodeChannels];
  MXATTN_UNROLL
  for (int r = 0; r < kRows; r++) {
    sum[r] = 0;
    for (int c = 0; c < kDecodeChannels; c++) out[r][c] = 0;
  }

  for (int tile = tiles.first; tile < tiles.end; tile = larger(tile + 1, tiles.begin)) {
    int token = tile * kTileRows + thread;
    float score[kRows];
    MXATTN_UNROLL
    for (int r = 0; r < kRows; r++) score[r] = 0;
    if (token < a.masks.keyLength) {
      PanelOfHead panel(d.cache, head, token / kBlock, Keys::kBytes);
      MXATTN_ROLLED
      for (int b = 0; b < a.headBlocks; b++) {
        unsigned packed[Keys::kBytes / 4], bytes[8];
        loadWords(panel.key(b, token % kBlock), packed);
        float scale = scaleOf(*panel.keyScale(b, token % kBlock)) * (1.f / format.toInteger);
        Elements::unpack(packed, bytes);
        MXATTN_UNROLL
        for (int r = 0; r < kRows; r++) {
          int product = 0;
          MXATTN_UNROLL
          for (int w = 0; w < 8; w++) product = dot4(static_cast<int>(bytes[w]), static_cast<int>(queries[r][b][w]), product);
          score[r] = fma(static_cast<float>(product), scale * queryScales[r][b], score[r]);
        }
      }
    }
    MXATTN_UNROLL
    for (int r = 0; r < kRows; r++) scores[r][thread] = score[r];
    MXATTN_ROLLED
    for (int r = 0; r < kRows; r++) {
      float one[1] = {scores[r][thread]};
      Row row = rowOf(a.masks, head, smaller(firstRow + r, rows - 1));
      maskScores<true>(one, a.masks, row, token, [](int) { return 0; });
      scores[r][thread] = one[0];
    }
    barrier();
    if (thread < kRows) decodeSoftmax(scores[thread], a.weightCarry, state, decoded[thread]);
    barrier();

    MXATTN_UNROLL
    for (int r = 0; r < kRows; r++) {
      sum[r] *= decoded[r].factor;
      for (int c = 0; c < kDecodeChannels; c++) out[r][c] *= decoded[r].factor;
    }
    MXATTN_ROLLED
    for (int r = 0; r < kRows; r++) {
      RowState<Bf16Weights> row{decoded[r].reference};
      int code = integerWeight(Bf16Weights::of(row.affine(scores[r][thread])), decoded[r].inverse[thread / kBlock]);
      reinterpret_cast<Byte*>(codes[r])[thread / kBlock * kBlock + Elements::byteOf(thread % kBlock)] = static_cast<Byte>(code);
    }
    barrier();
    if (tile < tiles.begin) continue;

    MXATTN_UNROLL
    for (int r = 0; r < kRows; r++) {
      MXATTN_UNROLL
      for (int b = 0; b < 2; b++) {
        int total = 0;
        for (int w = 0; w < 8; w++) total = dot4(static_cast<int>(codes[r][b * 8 + w]), 0x01010101, total);
        sum[r] = fma(static_cast<float>(total), decoded[r].unit[b], sum[r]);
      }
    }
    MXATTN_UNROLL
    for (int c = 0; c < kDecodeChannels; c++) {
      int channel = firstChannel + c * kDecodeThreads + thread;
      if (channel >= d.cache.channels) continue;
      MXATTN_ROLLED
      for (int b = 0; b < 2; b++) {
        int block = 2 * tile + b;
        if (block * kBlock >= a.masks.keyLength) continue;
        unsigned packed[Keys::kBytes / 4], bytes[8];
        int code = cachedValues<kRecipe>(d.cache, head, block, channel, a.masks.keyLength, packed);
        float scale = scaleOf(code) * (1.f / format.toInteger);
        Elements::unpack(packed, bytes);
        MXATTN_UNROLL
        for (int r = 0; r < kRows; r++) {
          int product = 0;
          MXATTN_UNROLL
          for (int w = 0; w < 8; w++) product = dot4(static_cast<int>(bytes[w]), static_cast<int>(codes[r][b * 8 + w]), product);
          out[r][c] = fma(static_cast<float>(product), scale * decoded[r].unit[b], out[r][c]);
        }
      }
    }
  }

  MXATTN_UNROLL
  for (int r = 0; r < kRows; r++) {
    int index = firstRow + r;
    if (index >= rows) continue;
    RowOutput output(a, head, index, split, rowOf(a.masks, head, index), decoded[r].reference, sum[r]);
    MXATTN_UNROLL
    for (int c = 0; c < kDecodeChannels; c++) {
      int channel = firstChannel + c * kDecodeThreads + thread;
      if (channel < a.valueSize) output.out[channel] = out[r][c] * output.factor;
    }
    if (a.splits > 1 && firstChannel + thread == 0) {
      RowOutput::putSums(a, head, index, split, decoded[r].reference, sum[r]);
    }
  }
}

#define MXATTN_DECODE(name, recipe)                                                                   \
  MXATTN_KERNEL(decode_##name##_1, kDecodeThreads, Decode) { decode<recipe, 1>(a); }                  \
  MXATTN_KERNEL(decode_##name##_2, kDecodeThreads, Decode) { decode<recipe, 2>(a); }                  \
  MXATTN_KERNEL(decode_##name##_4, kDecodeThreads, Decode) { decode<recipe, 4>(a); }                  \
  MXATTN_KERNEL(decode_##name##_8, kDecodeThreads, Decode) { decode<recipe, 8>(a); }

#if MXATTN_CACHES(1)
MXATTN_DECODE(mxfp6, kMxfp6)
#endif
#if MXATTN_CACHES(2)
MXATTN_DECODE(mxfp4, kMxfp4)
#endif

}  // namespace mxattn::hip::kernels
