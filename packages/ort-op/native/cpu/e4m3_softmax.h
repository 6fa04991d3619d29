// The softmax of mxfp8 (Fused-Softmax Attention, arXiv 2611.09225): a frozen reference with rollback, Schraudolph's
// exponential to bf16, weights rounded to E4M3, the sum of the same weights.

struct E4m3Softmax {
  static constexpr bool kQuantised = true;

  static void row(int row, RowState& state) {
    float* scores = state.scores + row * kTileKeys;
    float* sums = state.sum + row * kLanes;
    float& reference = state.reference[row];
    if (std::isnan(reference) || anyNaN(scores)) reference = kNaN;
    Floats top = load<Floats>(scores);
    for (int v = 1; v < kTileVectors; v++) top = maximum(load<Floats>(scores + v * kLanes), top);
    if (anyLane(top > reference + kRollback)) state.setReference(row, maximumOfLanes(top)[0]);
    Floats sum = load<Floats>(sums);
    Floats corrected = splat(reference + kSchraudolphCorrection);
    for (int v = 0; v < kTileVectors; v++) {
      Floats p{};
      // Else nothing is visible yet, or NaN.
      if (reference > -kInfinity) {
        p = elements(schraudolph(load<Floats>(scores + v * kLanes), corrected), kE4m3Weights);
      }
      sum += p;
      store(scores + v * kLanes, p);
    }
    store(sums, sum);
  }

 private:
  // Without a scale.
  static constexpr ElementFormat kE4m3Weights = kE4m3Even2;
};
