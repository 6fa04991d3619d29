// What all attention kernels share: which tiles of keys a workgroup visits, and how a row ends.
#pragma once

namespace mxattn::hip::kernels {

MXATTN_INLINE int groupRows(const Masks& masks) { return masks.heads / masks.kvHeads * masks.queryLength; }

struct TileRange {
  // The tile that the reference comes from: all splits begin with the same one.
  int first;
  int begin;
  int end;
  // Keys that every row of the workgroup sees.
  KeyRange all;

  // Whether scores of a tile change before the softmax.
  MXATTN_INLINE bool masked(const Masks& masks, int tile) const {
    return masks.softcap > 0 || masks.bias != 0 || tile * kTileRows < all.begin || (tile + 1) * kTileRows > all.end;
  }
};

// Tiles of a split of the keys that `count` rows from a first one on see.
MXATTN_INLINE TileRange tilesOf(const Attend& a, int firstRow, int count, int split) {
  SharedRange shared = visibleKeys(a.masks, firstRow, smaller(firstRow + count, groupRows(a.masks)) - 1);
  int begin = larger(shared.any.begin / kTileRows, split * a.tilesPerSplit);
  int end = smaller((shared.any.end + kTileRows - 1) / kTileRows, (split + 1) * a.tilesPerSplit);
  int first = begin < end ? shared.any.begin / kTileRows : begin;
  return {first, begin, end, shared.all};
}

// Writes `kCount` channels of a row: final, or for the combination with those of other splits.
struct RowOutput {
  float* out;
  float factor;

  MXATTN_INLINE RowOutput(const Attend& a, int head, int row, int split, const Row& rowFacts, float reference, float sum) {
    long long index = static_cast<long long>(head) * groupRows(a.masks) + row;
    if (a.splits == 1) {
      out = at<float>(a.out) + index * a.valueSize;
      factor = normaliser(reference, withSink(reference, sum, a.masks, rowFacts.head));
    } else {
      out = at<float>(a.partial) + (index * a.splits + split) * a.valueSize;
      factor = 1;
    }
  }

  MXATTN_INLINE static void putSums(const Attend& a, int head, int row, int split, float reference, float sum) {
    long long index = (static_cast<long long>(head) * groupRows(a.masks) + row) * a.splits + split;
    at<float>(a.partialSums)[2 * index] = reference;
    at<float>(a.partialSums)[2 * index + 1] = sum;
  }
};

}  // namespace mxattn::hip::kernels
