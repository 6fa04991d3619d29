// The exact softmax of f32: the running maximum is the reference; output and sum are rescaled when it grows.

struct OnlineSoftmax {
  static constexpr bool kQuantised = false;

  static void row(int row, RowState& state) {
    float* scores = state.scores + row * kTileKeys;
    float* sums = state.sum + row * kLanes;
    float& reference = state.reference[row];
    if (std::isnan(reference) || anyNaN(scores)) {
      reference = kNaN;
      for (int v = 0; v < kTileVectors; v++) store(scores + v * kLanes, Floats{});
      return;
    }
    Ints above{};
    for (int v = 0; v < kTileVectors; v++) above |= load<Floats>(scores + v * kLanes) > reference;
    if (anyLane(above)) state.setReference(row, largestScore(scores)[0]);
    Floats sum = load<Floats>(sums);
    for (int v = 0; v < kTileVectors; v++) {
      Floats p{};
      if (reference > -kInfinity) p = exp2(load<Floats>(scores + v * kLanes) - reference);
      sum += p;
      store(scores + v * kLanes, p);
    }
    store(sums, sum);
  }
};
