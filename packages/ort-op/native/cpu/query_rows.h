// The queries of a unit of work as integers, one row each.

struct QueryRows {
  int8_t* codes;     // [kRowBlock][32 * blocks]
  float* scales;     // [kRowBlock][blocks]
  // What takes kKeyOffset back that was added to every key code, [kRowBlock][blocks]: in 32 bits, and for narrow sums as
  // 2 x int16, which may wrap around.
  int32_t* offsets;
  int32_t* narrowOffsets;
  // Of all blocks, [kRowBlock].
  int32_t* offset;
  // One scale for the row.
  bool* aligned;
  float* norm;  // see OperandTiles::largestNorm
  bool nan;     // some query is not a number

  static QueryRows take(int64_t blocks, Arena& arena) {
    QueryRows rows{};
    rows.codes = arena.take<int8_t>(kRowBlock * blocks * kBlock);
    rows.scales = arena.take<float>(kRowBlock * blocks);
    rows.offsets = arena.take<int32_t>(kRowBlock * blocks);
    rows.narrowOffsets = arena.take<int32_t>(kRowBlock * blocks);
    rows.offset = arena.take<int32_t>(kRowBlock);
    rows.aligned = arena.take<bool>(kRowBlock);
    rows.norm = arena.take<float>(kRowBlock);
    return rows;
  }

  // Takes the codes of a row, which are in their place already.
  void put(int row, int64_t blocks, const int32_t* exponents, ElementFormat format) {
    int8_t* to = codes + row * blocks * kBlock;
    float* rowScales = scales + row * blocks;
    for (int64_t b = 0; b < blocks; b++) nan |= std::isnan(rowScales[b]);
    aligned[row] = alignRow(to, exponents, rowScales, blocks, format);
    norm[row] = OperandTiles::largestNorm(to, blocks);
    offset[row] = 0;
    for (int64_t b = 0; b < blocks; b++) {
      int32_t first = 0, second = 0;
      if constexpr (kNarrowSums) {
        Ints codes{};
        std::memcpy(&codes, to + b * kBlock, kBlock);
        OperandTiles::PairSums sums = OperandTiles::pairSums(splat(0x01010101), codes);
        first = sums.first[0];
        second = sums.second[0];
      } else {
        for (int c = 0; c < kBlock; c++) first += to[b * kBlock + c];
      }
      auto low = static_cast<uint16_t>(-kKeyOffset * first), high = static_cast<uint16_t>(-kKeyOffset * second);
      narrowOffsets[row * blocks + b] = static_cast<int32_t>(low | uint32_t{high} << 16);
      offsets[row * blocks + b] = -kKeyOffset * (first + second);
      offset[row] += offsets[row * blocks + b];
    }
  }
};
