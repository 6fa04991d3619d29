// Arguments of the kernels, as host and GPU lay them out alike.
//
// Operands of the products are in tiles of 64 rows (query rows or keys) or 64 tokens (values), zeros past the last:
//   rows    [head][tile][block of 32 channels][64 rows], each `block bytes` and a scale
//   values  [head][tile][block of 32 tokens: 2][channel], the same
// How many bytes a block and its scale have is the operand's matter (operands.h). Query heads that share a key/value head
// are one head here: row r of it is query r % queryLength of the head r / queryLength of its group.
#pragma once

namespace mxattn::hip::kernels {

using Pointer = unsigned long long;

constexpr int kTileRows = 64;
constexpr int kBlock = 32;
// Larger than every position, small enough to be added to one.
constexpr int kNoWindow = 1 << 30;

// Stable ids of the recipes in @mxattn/core.
enum Recipe { kFloat32 = 0, kMxfp6 = 1, kMxfp4 = 2, kMxfp8 = 3, kMxfp6Direct = 10 };

// In which order the tokens of a block of values lie: that in which lanes have the weights of them (see tokenAt).
enum TokenOrder { kInOrder = 0, kOrderMfma = 1, kOrderGfx11 = 2, kOrderGfx12 = 3 };

// Sixteen threads of a workgroup of quantiseRows share a row, which is in shared memory with one more float after every 32:
// 32 KiB for all rows of the workgroup.
constexpr int kQuantiseThreads = 256;
constexpr int kRowThreads = 16;
constexpr int kStagedFloats = 8192;

struct QuantiseRows {
  Pointer from;  // [head][rows][size]
  Pointer codes;
  Pointer scales;
  int rows;
  int written;  // rows and zeros behind them
  int size;
  int blocks;
  int tiles;
  int rowsPerGroup;  // see kStagedFloats
  float factor;
  float norm;  // of the Hadamard rotation; 0: none
};

struct QuantiseValues {
  Pointer from;  // [head][tokens][size]
  Pointer codes;
  Pointer scales;
  int tokens;
  int size;
  int channels;
  int tiles;
  int order;
};

// Which keys a row sees and what is added to its scores.
struct Masks {
  Pointer bias;   // 0: none
  Pointer sinks;  // 0: none
  long long biasBatchStride;
  long long biasHeadStride;
  long long biasQueryStride;
  long long biasKeyStride;
  int heads;
  int kvHeads;
  int queryLength;
  int keyLength;
  int windowLeft;
  int windowRight;
  float softcap;  // in log2 units; 0: none
};

// Blocks of heads and values together up to which a workgroup of gfx950 has 8 waves, of 256 registers a lane, and 256 query rows;
// above, 4 waves of 512 registers and 128 rows.
constexpr int kMostBlocksOf8Waves = 8;

constexpr int kLaneThreads = 64;
// Output channels of a lane, and those on RDNA, which has half the registers for it.
constexpr int kLaneChannels = 64;
constexpr int kLaneChannelsRdna = 32;

struct Attend {
  Pointer query;
  Pointer queryScales;
  Pointer key;
  Pointer keyScales;
  Pointer value;
  Pointer valueScales;
  Pointer out;
  // With several splits: [head][row][split][valueSize] floats not yet divided by the sum, and [head][row][split] pairs of
  // reference and sum.
  Pointer partial;
  Pointer partialSums;
  Masks masks;
  int headBlocks;
  int valueSize;
  int channels;
  int queryTiles;
  int keyTiles;
  // Workgroups that share the keys of a row.
  int splits;
  int tilesPerSplit;
  // Added to the bf16 bits of a block's largest weight before its exponent is taken: 15 for scales that never saturate.
  int weightCarry;
};

// Sizes, in blocks of 32, that attend_matrix.h is compiled for: MXATTN_SIZES(head, values). Others are padded to the next
// that has room, or go without matrix instructions.
#define MXATTN_SIZES(size) size(2, 1) size(2, 2) size(4, 3) size(4, 4) size(6, 4) size(6, 6) size(8, 8)

constexpr int kCombineThreads = 64;

// A packed cache. Panels of 32 tokens of all heads; of each head in a panel
//   keys          [block of the head][32 tokens][block bytes]
//   values        [channel][block bytes], the block being the 32 tokens, in order
//   key scales    [block of the head][32 tokens], E8M0; none at f32
//   value scales  [channel]
// Values of the last, incomplete panel are floats in the tail, [head][32 tokens][valueSize].
struct CacheView {
  Pointer panels;
  Pointer tail;
  long long panelBytes;
  int headBytes;
  int headBlocks;
  int channels;
  int valueSize;
};

// Rows of the new tokens; codes, scales and tiles are those of the cache.
struct AppendKeys {
  QuantiseRows rows;
  CacheView cache;
  int firstToken;
};

struct AppendValues {
  Pointer from;  // [head][tokens - firstToken][valueSize]
  CacheView cache;
  int firstToken;
  int tokens;
};

// A cache to operands of the products.
struct Expand {
  CacheView cache;
  Pointer codes;
  Pointer scales;
  int tokens;
  int blocks;    // of keys
  int channels;  // of values
  int tiles;
  int order;
};

// A cache back to floats.
struct ReadCache {
  CacheView cache;
  Pointer keys;
  Pointer values;
  int tokens;
  int size;
  float norm;  // of the Hadamard rotation of the keys; 0: none
};

constexpr int kCacheThreads = 256;
constexpr int kDecodeThreads = 64;
// Output channels of a thread that decodes, kDecodeThreads apart.
constexpr int kDecodeChannels = 2;

struct Decode {
  Attend attend;
  CacheView cache;
};

struct Combine {
  Pointer partial;
  Pointer partialSums;
  Pointer out;
  Masks masks;
  int valueSize;
  int splits;
  int rows;
};

}  // namespace mxattn::hip::kernels
