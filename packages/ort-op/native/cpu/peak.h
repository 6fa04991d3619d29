// The rate of arithmetic in registers, to judge kernels by. Twelve independent sums hide the latency; on a busy machine
// the best of several short measurements counts.

constexpr int kPeakSums = 12;
constexpr int kPeakMeasurements = 15;
constexpr int64_t kPeakRounds = 4'000'000 / kLanes;

// Operations a second of the fastest measurement of `body`, which does `operations`.
template <typename Body>
double bestRate(double operations, double (*seconds)(), const Body& body) {
  double best = 0;
  for (int i = 0; i < kPeakMeasurements; i++) {
    double start = seconds();
    body();
    best = std::max(best, operations / (seconds() - start));
  }
  return best;
}

// Multiply-adds of floats on this thread, in operations a second (two each). `seconds` is a clock.
double floatPeak(double (*seconds)()) {
  Floats sums[kPeakSums];
  for (int j = 0; j < kPeakSums; j++) sums[j] = splat(static_cast<float>(j));
  return bestRate(2. * kPeakRounds * kPeakSums * kLanes, seconds, [&] {
    Floats factor = splat(0.999f), term = splat(0.001f);
    for (int64_t i = 0; i < kPeakRounds; i++) {
#pragma GCC unroll 12
      for (int j = 0; j < kPeakSums; j++) sums[j] = sums[j] * factor + term;
    }
    for (int j = 0; j < kPeakSums; j++) opaque(sums[j]);
  });
}
