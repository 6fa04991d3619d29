// Keys and values as tiles of kTileKeys tokens per head: those of one call, or those of a cache.
#pragma once

#include <cstdint>

namespace mxattn::cpu {

// Tokens of a tile, of which the kernel's reference is frozen in the first.
constexpr int kTileKeys = 64;
// Tokens of an MX block of values, of which the last, unfinished one is kept in floats beside a quantised cache.
constexpr int kTailTokens = 32;

// Tiles in chunks: chunk c holds, for every head, tiles [c * tilesPerChunk, (c + 1) * tilesPerChunk). A cache grows by
// whole chunks, so that nothing moves.
struct Tiles {
  uint8_t* const* chunks;
  int64_t tilesPerChunk;
  int64_t tileBytes;

  uint8_t* at(int64_t head, int64_t tile) const {
    return chunks[tile / tilesPerChunk] + (head * tilesPerChunk + tile % tilesPerChunk) * tileBytes;
  }
};

}  // namespace mxattn::cpu
