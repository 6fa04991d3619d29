// Into a packed cache, out of it for the attention kernels, and back to floats.
#pragma once

namespace mxattn::hip::kernels {

struct PanelOfHead {
  Byte* base;
  const CacheView& cache;
  int blockBytes;

  MXATTN_INLINE PanelOfHead(const CacheView& view, int head, int panel, int bytes)
      : base(at<Byte>(view.panels) + panel * view.panelBytes + static_cast<long long>(head) * view.headBytes),
        cache(view),
        blockBytes(bytes) {}

  MXATTN_INLINE Byte* key(int block, int token) const { return base + (block * kBlock + token) * blockBytes; }
  MXATTN_INLINE Byte* value(int channel) const { return base + (cache.headBlocks * kBlock + channel) * blockBytes; }
  MXATTN_INLINE Byte* keyScale(int block, int token) const {
    return base + (cache.headBlocks * kBlock + cache.channels) * blockBytes + block * kBlock + token;
  }
  MXATTN_INLINE Byte* valueScale(int channel) const { return keyScale(cache.headBlocks, 0) + channel; }
};

MXATTN_INLINE float* tailOf(const CacheView& cache, int head, int token) {
  return at<float>(cache.tail) + (static_cast<long long>(head) * kBlock + token % kBlock) * cache.valueSize;
}

template <int kRecipe>
MXATTN_INLINE void appendKeys(const AppendKeys& a) {
  using Blocks = CacheBlocks<kRecipe, false>;
  quantiseRows<Blocks>(a.rows, [&a](int head, int row, int block) {
    int token = a.firstToken + row;
    PanelOfHead panel(a.cache, head, token / kBlock, Blocks::kBytes);
    return Placed{panel.key(block, token % kBlock), panel.keyScale(block, token % kBlock)};
  });
}

// Codes and scale of a block of values of the cache that is not packed yet.
template <typename Blocks, typename Value>
MXATTN_INLINE void encodeValues(const Value& value, unsigned (&words)[Blocks::kBytes / 4], typename Blocks::Scale& scale) {
  float x[kBlock];
  unsigned largest = 0;
  int start = 0;
  MXATTN_UNROLL
  for (int i = 0; i < kBlock; i++) {
    if (i % 4 == 0) beginUniform(start);
    x[i] = value(start + i);
    largest = larger(largest, bitsOf(x[i]) & 0x7fffffffu);
  }
  Blocks::encode(x, largest, words, scale);
}

// Panels that are complete now. A thread has a channel of one.
template <int kRecipe>
MXATTN_INLINE void appendValues(const AppendValues& a) {
  using Blocks = CacheBlocks<kRecipe, true>;
  long long index = static_cast<long long>(groupX()) * kCacheThreads + threadIndex();
  int channel = static_cast<int>(index % a.cache.channels), head = groupY();
  long long block = a.firstToken / kBlock + index / a.cache.channels;
  if (block >= a.tokens / kBlock) return;
  int firstToken = static_cast<int>(block) * kBlock;
  unsigned words[Blocks::kBytes / 4];
  typename Blocks::Scale scale{};
  encodeValues<Blocks>(
      [&](int i) {
        int token = firstToken + i;
        if (channel >= a.cache.valueSize) return 0.f;
        if (token < a.firstToken) return tailOf(a.cache, head, token)[channel];
        long long row = static_cast<long long>(head) * (a.tokens - a.firstToken) + token - a.firstToken;
        return at<const float>(a.from)[row * a.cache.valueSize + channel];
      },
      words, scale);
  PanelOfHead panel(a.cache, head, static_cast<int>(block), Blocks::kBytes);
  storeWords(panel.value(channel), words);
  if (Blocks::kScales) *panel.valueScale(channel) = static_cast<Byte>(scale);
}

// Values of the last, incomplete panel, after the others are packed. A thread has a channel of a new token.
MXATTN_KERNEL(append_tail, kCacheThreads, AppendValues) {
  int first = larger(a.firstToken, a.tokens / kBlock * kBlock), head = groupY();
  int index = groupX() * kCacheThreads + threadIndex();
  int token = first + index / a.cache.valueSize, channel = index % a.cache.valueSize;
  if (token >= a.tokens) return;
  long long row = static_cast<long long>(head) * (a.tokens - a.firstToken) + token - a.firstToken;
  tailOf(a.cache, head, token)[channel] = at<const float>(a.from)[row * a.cache.valueSize + channel];
}

// Codes and scale of 32 tokens of a channel: packed, or of the tail.
template <int kRecipe>
MXATTN_INLINE int cachedValues(const CacheView& cache, int head, int block, int channel, int tokens,
                               unsigned (&words)[CacheBlocks<kRecipe, true>::kBytes / 4]) {
  using Blocks = CacheBlocks<kRecipe, true>;
  typename Blocks::Scale scale{};
  if ((block + 1) * kBlock <= tokens) {
    PanelOfHead panel(cache, head, block, Blocks::kBytes);
    loadWords(panel.value(channel), words);
    return Blocks::kScales ? *panel.valueScale(channel) : 0;
  }
  // What is read of a channel or token that is not there does not matter.
  int known = smaller(channel, cache.valueSize - 1);
  encodeValues<Blocks>(
      [&](int i) {
        float x = tailOf(cache, head, i)[known];
        return channel < cache.valueSize && block * kBlock + i < tokens ? x : 0.f;
      },
      words, scale);
  return static_cast<int>(scale);
}

// Blocks of a cache, packed, as those of another kind of operand, with their elements in the order source(i).
template <int kRecipe, typename Target, typename Source>
MXATTN_INLINE void convert(const unsigned (&words)[CacheBlocks<kRecipe, false>::kBytes / 4], int scaleCode,
                           const Source& source, unsigned (&out)[Target::kBytes / 4], typename Target::Scale& scale) {
  constexpr int kBits = CacheBlocks<kRecipe, false>::kBits;
  if constexpr (Target::kBytes == 128) {
    float factor = kRecipe == kFloat32 ? 1.f : scaleOf(scaleCode);
    MXATTN_UNROLL
    for (int i = 0; i < kBlock; i++) out[i] = bitsOf(elementOf<kRecipe>(codeAt<kBits>(words, source(i))) * factor);
  } else if constexpr (sizeof(typename Target::Scale) == 4) {
    constexpr ElementFormat format = elementFormat(kRecipe, true);
    scale = scaleOf(scaleCode) * (1.f / format.toInteger);
    MXATTN_UNROLL
    for (int w = 0; w < 8; w++) {
      int n[4];
      MXATTN_UNROLL
      for (int i = 0; i < 4; i++) n[i] = integerOf<kRecipe>(codeAt<kBits>(words, source(4 * w + i)));
      out[w] = word4(n);
    }
  } else {
    scale = static_cast<Byte>(scaleCode);
    MXATTN_UNROLL
    for (int w = 0; w < Target::kBytes / 4; w++) out[w] = 0;
    MXATTN_UNROLL
    for (int i = 0; i < kBlock; i++) {
      unsigned bits = codeAt<kBits>(words, source(i));
      int first = i * kBits / 32, shift = i * kBits % 32;
      out[first] |= bits << shift;
      if (shift + kBits > 32) out[first + 1] |= bits >> (32 - shift);
    }
  }
}

template <typename Target>
MXATTN_INLINE void storeBlock(const Expand& a, long long place, const unsigned (&words)[Target::kBytes / 4],
                              typename Target::Scale scale) {
  storeWords(at<Byte>(a.codes) + place * Target::kBytes, words);
  if (Target::kScales) at<typename Target::Scale>(a.scales)[place] = scale;
}

// A thread has a block of a key.
template <int kRecipe, typename Target>
MXATTN_INLINE void expandKeys(const Expand& a) {
  using Blocks = CacheBlocks<kRecipe, false>;
  long long index = static_cast<long long>(groupX()) * kCacheThreads + threadIndex();
  int head = groupY(), row = static_cast<int>(index % kTileRows);
  int block = static_cast<int>(index / kTileRows % a.blocks), tile = static_cast<int>(index / kTileRows / a.blocks);
  if (tile >= a.tiles) return;
  int token = tile * kTileRows + row, scaleCode = 0;
  unsigned words[Blocks::kBytes / 4] = {}, out[Target::kBytes / 4];
  if (token < a.tokens && block < a.cache.headBlocks) {
    PanelOfHead panel(a.cache, head, token / kBlock, Blocks::kBytes);
    loadWords(panel.key(block, token % kBlock), words);
    if (Blocks::kScales) scaleCode = *panel.keyScale(block, token % kBlock);
  }
  typename Target::Scale scale{};
  convert<kRecipe, Target>(words, scaleCode, [](int i) { return i; }, out, scale);
  storeBlock<Target>(a, static_cast<long long>(head) * a.tiles * a.blocks * kTileRows + index, out, scale);
}

// A thread has a channel of a block of tokens.
template <int kRecipe, typename Target>
MXATTN_INLINE void expandValues(const Expand& a) {
  using Blocks = CacheBlocks<kRecipe, true>;
  long long index = static_cast<long long>(groupX()) * kCacheThreads + threadIndex();
  int head = groupY(), channel = static_cast<int>(index % a.channels), block = static_cast<int>(index / a.channels);
  if (block >= 2 * a.tiles) return;
  unsigned words[Blocks::kBytes / 4] = {}, out[Target::kBytes / 4];
  int scaleCode = 0;
  if (block * kBlock < a.tokens && channel < a.cache.channels) {
    scaleCode = cachedValues<kRecipe>(a.cache, head, block, channel, a.tokens, words);
  }
  typename Target::Scale scale{};
  if (a.order == kInOrder) {
    convert<kRecipe, Target>(words, scaleCode, [](int i) { return i; }, out, scale);
  } else {
    convert<kRecipe, Target>(words, scaleCode, [](int i) { return tokenAt(kMatrixOrder, i); }, out, scale);
  }
  storeBlock<Target>(a, static_cast<long long>(head) * a.tiles * 2 * a.channels + index, out, scale);
}

// Keys of one token, rotated back, and its values. A workgroup has a token of a head.
template <int kRecipe>
MXATTN_INLINE void readCache(const ReadCache& a) {
  using Keys = CacheBlocks<kRecipe, false>;
  using Values = CacheBlocks<kRecipe, true>;
  MXATTN_SHARED float x[1024];
  int token = groupX(), head = groupY();
  long long row = static_cast<long long>(head) * a.tokens + token;
  PanelOfHead panel(a.cache, head, token / kBlock, Keys::kBytes);
  for (int b = threadIndex(); b < a.cache.headBlocks; b += kDecodeThreads) {
    unsigned packed[Keys::kBytes / 4];
    loadWords(panel.key(b, token % kBlock), packed);
    float scale = Keys::kScales ? scaleOf(*panel.keyScale(b, token % kBlock)) : 1.f;
    MXATTN_UNROLL
    for (int i = 0; i < kBlock; i++) x[b * kBlock + i] = elementOf<kRecipe>(codeAt<Keys::kBits>(packed, i)) * scale;
  }
  barrier();
  if (a.norm != 0) {
    for (int step = 1; step < a.size; step *= 2) {
      for (int pair = threadIndex(); pair < a.size / 2; pair += kDecodeThreads) {
        int first = pair / step * 2 * step + pair % step;
        float p = x[first], q = x[first + step];
        x[first] = p + q;
        x[first + step] = p - q;
      }
      barrier();
    }
  }
  float norm = a.norm != 0 ? a.norm : 1.f;
  for (int c = threadIndex(); c < a.size; c += kDecodeThreads) at<float>(a.keys)[row * a.size + c] = x[c] * norm;
  for (int c = threadIndex(); c < a.cache.valueSize; c += kDecodeThreads) {
    unsigned packed[Values::kBytes / 4];
    int code = cachedValues<kRecipe>(a.cache, head, token / kBlock, c, a.tokens, packed);
    // A block's bits are in registers, which have no index.
    unsigned bits = 0;
    int wanted = token % kBlock;
    MXATTN_UNROLL
    for (int i = 0; i < kBlock; i++) {
      if (i % 4 == 0) beginUniform(wanted);
      bits = i == wanted ? codeAt<Values::kBits>(packed, i) : bits;
    }
    at<float>(a.values)[row * a.cache.valueSize + c] = elementOf<kRecipe>(bits) * (Values::kScales ? scaleOf(code) : 1.f);
  }
}

#define MXATTN_CACHE(name, recipe)                                                                  \
  MXATTN_KERNEL(append_keys_##name, kQuantiseThreads, AppendKeys) { appendKeys<recipe>(a); }        \
  MXATTN_KERNEL(append_values_##name, kCacheThreads, AppendValues) { appendValues<recipe>(a); }     \
  MXATTN_KERNEL(read_cache_##name, kDecodeThreads, ReadCache) { readCache<recipe>(a); }
#define MXATTN_EXPAND(kind, name, recipe, Target)                                                                          \
  MXATTN_KERNEL(expand_keys_##kind##_##name, kCacheThreads, Expand) { expandKeys<recipe, Target<recipe, false>>(a); }      \
  MXATTN_KERNEL(expand_values_##kind##_##name, kCacheThreads, Expand) { expandValues<recipe, Target<recipe, true>>(a); }

#if MXATTN_CACHES(0)
MXATTN_CACHE(f32, kFloat32)
MXATTN_EXPAND(floats, f32, kFloat32, FloatBlocks)
#endif
#if MXATTN_CACHES(1)
MXATTN_CACHE(mxfp6, kMxfp6)
MXATTN_EXPAND(bytes, mxfp6, kMxfp6, ByteBlocks)
#endif
#if MXATTN_CACHES(2)
MXATTN_CACHE(mxfp4, kMxfp4)
MXATTN_EXPAND(bytes, mxfp4, kMxfp4, ByteBlocks)
#endif
#if MXATTN_CACHES(3)
MXATTN_CACHE(mxfp8, kMxfp8)
MXATTN_EXPAND(floats, mxfp8, kMxfp8, FloatBlocks)
#endif
#if defined(MXATTN_GFX950)
#if MXATTN_CACHES(1)
MXATTN_EXPAND(packed, mxfp6, kMxfp6, PackedBlocks)
#endif
#if MXATTN_CACHES(2)
MXATTN_EXPAND(packed, mxfp4, kMxfp4, PackedBlocks)
#endif
#if MXATTN_CACHES(3)
MXATTN_EXPAND(packed, mxfp8, kMxfp8, PackedBlocks)
#endif
#endif

}  // namespace mxattn::hip::kernels
