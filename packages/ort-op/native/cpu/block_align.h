// One exponent for a whole row of MX blocks. Integers of E2M1 and E2M3 elements are at most 12 and 60, so a byte has room
// for three and one more bits: where the exponents of a row's blocks are that close, the integers of the larger ones are
// shifted instead, and products along the whole row add up in one integer. Nothing is lost; rows that do not fit keep a
// scale for each block.

// Exponents, biased, of a row's blocks, of which those of zeros alone are any number: kAnyExponent.
constexpr int32_t kAnyExponent = -1;

struct RowExponents {
  int32_t lowest;
  int32_t highest;
  // No block has NaN.
  bool numbers;
};

MXATTN_INLINE RowExponents rowExponents(const int32_t* exponents, const float* scales, int64_t blocks) {
  RowExponents row{255, 0, true};
  for (int64_t b = 0; b < blocks; b++) {
    row.numbers &= !std::isnan(scales[b]);
    if (exponents[b] == kAnyExponent) continue;
    row.lowest = std::min(row.lowest, exponents[b]);
    row.highest = std::max(row.highest, exponents[b]);
  }
  if (row.lowest > row.highest) row.lowest = row.highest;
  return row;
}

// Bits that integers of a format can be shifted up in a signed byte.
MXATTN_INLINE int32_t spareBits(ElementFormat format) { return format.toInteger == 2.f ? 3 : 1; }

// Shifts the codes of a row to its lowest exponent and gives all blocks that scale; false, and nothing done, where a
// block does not fit.
MXATTN_INLINE bool alignRow(int8_t* codes, const int32_t* exponents, float* scales, int64_t blocks,
                            ElementFormat format) {
  RowExponents row = rowExponents(exponents, scales, blocks);
  if (!row.numbers || row.highest - row.lowest > spareBits(format)) return false;
  float scale = (scaleOf(splat(row.lowest)) / format.toInteger)[0];
  for (int64_t b = 0; b < blocks; b++) {
    if (exponents[b] > row.lowest) {
      int32_t factor = 1 << (exponents[b] - row.lowest);
      for (int c = 0; c < kBlock; c++) codes[b * kBlock + c] = static_cast<int8_t>(codes[b * kBlock + c] * factor);
    }
    scales[b] = scale;
  }
  return true;
}
