// Query, key and value as operands of the products.
#pragma once

namespace mxattn::hip::kernels {

template <int kWords>
MXATTN_INLINE void storeWords(Byte* to, const unsigned (&words)[kWords]) {
  auto at = reinterpret_cast<unsigned*>(to);
  MXATTN_UNROLL
  for (int w = 0; w < kWords; w++) at[w] = words[w];
}

// Of one row in shared memory: one more float after every 32, so that blocks begin in different banks.
MXATTN_INLINE int staged(int channel) { return channel + channel / kBlock; }

struct Placed {
  Byte* codes;
  Byte* scale;
};

// Rows to blocks along the head: fold, Hadamard rotation, quantisation. Sixteen threads have a row.
// place(head, row, block) says where codes and scale go.
template <typename Blocks, typename Place>
MXATTN_INLINE void quantiseRows(const QuantiseRows& a, const Place& place) {
  MXATTN_SHARED float elements[kStagedFloats];
  int padded = a.blocks * kBlock;
  int slot = threadIndex() / kRowThreads, thread = threadIndex() % kRowThreads;
  int head = groupY(), row = groupX() * a.rowsPerGroup + slot;
  bool mine = slot < a.rowsPerGroup && row < a.written;
  float* x = elements + (mine ? slot : 0) * (padded + a.blocks);
  if (mine) {
    const float* from = at<const float>(a.from) + (static_cast<long long>(head) * a.rows + row) * a.size;
    for (int c = thread; c < padded; c += kRowThreads) x[staged(c)] = row < a.rows && c < a.size ? from[c] * a.factor : 0;
  }
  if (a.norm != 0) {
    for (int step = 1; step < a.size; step *= 2) {
      barrier();
      for (int pair = thread; mine && pair < a.size / 2; pair += kRowThreads) {
        int first = pair / step * 2 * step + pair % step;
        float p = x[staged(first)], q = x[staged(first + step)];
        x[staged(first)] = p + q;
        x[staged(first + step)] = p - q;
      }
    }
  }
  barrier();
  float norm = a.norm != 0 ? a.norm : 1.f;
  for (int b = thread; mine && b < a.blocks; b += kRowThreads) {
    float block[kBlock];
    unsigned largest = 0;
    MXATTN_UNROLL
    for (int i = 0; i < kBlock; i++) {
      block[i] = x[staged(b * kBlock + i)] * norm;
      largest = larger(largest, bitsOf(block[i]) & 0x7fffffffu);
    }
    unsigned words[Blocks::kBytes / 4];
    typename Blocks::Scale scale{};
    Blocks::encode(block, largest, words, scale);
    Placed to = place(head, row, b);
    storeWords(to.codes, words);
    if (Blocks::kScales) *reinterpret_cast<typename Blocks::Scale*>(to.scale) = scale;
  }
}

template <typename Blocks>
MXATTN_INLINE void quantiseRows(const QuantiseRows& a) {
  quantiseRows<Blocks>(a, [&a](int head, int row, int block) {
    long long tile = static_cast<long long>(head) * a.tiles + row / kTileRows;
    long long place = (tile * a.blocks + block) * kTileRows + row % kTileRows;
    return Placed{at<Byte>(a.codes) + place * Blocks::kBytes, at<Byte>(a.scales) + place * sizeof(typename Blocks::Scale)};
  });
}

// Values to blocks along the tokens. A thread has a channel of a block.
template <typename Blocks>
MXATTN_INLINE void quantiseValues(const QuantiseValues& a) {
  long long block = groupX() * kQuantiseThreads + threadIndex();
  int channel = static_cast<int>(block % a.channels), blockOfHead = static_cast<int>(block / a.channels), head = groupY();
  if (blockOfHead >= 2 * a.tiles) return;
  const float* from = at<const float>(a.from) + static_cast<long long>(head) * a.tokens * a.size + channel;
  float x[kBlock];
  unsigned largest = 0;
  MXATTN_UNROLL
  for (int i = 0; i < kBlock; i++) {
    int token = blockOfHead * kBlock + tokenAt(a.order, i);
    x[i] = token < a.tokens && channel < a.size ? from[static_cast<long long>(token) * a.size] : 0;
    largest = larger(largest, bitsOf(x[i]) & 0x7fffffffu);
  }
  unsigned words[Blocks::kBytes / 4];
  typename Blocks::Scale scale{};
  Blocks::encode(x, largest, words, scale);
  long long place = (static_cast<long long>(head) * a.tiles * 2 + blockOfHead) * a.channels + channel;
  storeWords(at<Byte>(a.codes) + place * Blocks::kBytes, words);
  if (Blocks::kScales) at<typename Blocks::Scale>(a.scales)[place] = scale;
}

#define MXATTN_QUANTISE(name, Blocks, recipe)                                                               \
  MXATTN_KERNEL(quantise_rows_##name, kQuantiseThreads, QuantiseRows) { quantiseRows<Blocks<recipe, false>>(a); } \
  MXATTN_KERNEL(quantise_values_##name, kQuantiseThreads, QuantiseValues) { quantiseValues<Blocks<recipe, true>>(a); }

#if MXATTN_COMPILES(0)
MXATTN_QUANTISE(floats_f32, FloatBlocks, kFloat32)
#endif
#if MXATTN_COMPILES(1)
MXATTN_QUANTISE(bytes_mxfp6, ByteBlocks, kMxfp6)
#endif
#if MXATTN_COMPILES(10)
MXATTN_QUANTISE(floats_mxfp6, FloatBlocks, kMxfp6)
#endif
#if MXATTN_COMPILES(2)
MXATTN_QUANTISE(bytes_mxfp4, ByteBlocks, kMxfp4)
#endif
#if MXATTN_COMPILES(3)
MXATTN_QUANTISE(floats_mxfp8, FloatBlocks, kMxfp8)
#endif
#if defined(MXATTN_GFX950)
#if MXATTN_COMPILES(1) || MXATTN_COMPILES(10)
MXATTN_QUANTISE(packed_mxfp6, PackedBlocks, kMxfp6)
#endif
#if MXATTN_COMPILES(2)
MXATTN_QUANTISE(packed_mxfp4, PackedBlocks, kMxfp4)
#endif
#if MXATTN_COMPILES(3)
MXATTN_QUANTISE(packed_mxfp8, PackedBlocks, kMxfp8)
#endif
#endif

}  // namespace mxattn::hip::kernels
