// The rate of arithmetic in registers, to judge kernels by. Twelve independent sums hide the latency.

constexpr int kPeakSums = 12;
constexpr int64_t kPeakRounds = 10'000'000 / kLanes;

// Multiply-adds of floats on this thread, in operations a second (two each). `seconds` is a clock.
double floatPeak(double (*seconds)()) {
  Floats sums[kPeakSums];
  for (int j = 0; j < kPeakSums; j++) sums[j] = splat(static_cast<float>(j));
  Floats factor = splat(0.999f), term = splat(0.001f);
  double start = seconds();
  for (int64_t i = 0; i < kPeakRounds; i++) {
#pragma GCC unroll 12
    for (int j = 0; j < kPeakSums; j++) sums[j] = sums[j] * factor + term;
  }
  double elapsed = seconds() - start;
  Floats total{};
  for (int j = 0; j < kPeakSums; j++) total += sums[j];
  // Uses the result, or there would be nothing to compute.
  return sumOfLanes(total)[0] > -1 ? kPeakRounds * kPeakSums * kLanes * 2 / elapsed : 0;
}

// Products of bytes added up in fours, likewise.
double bytePeak(double (*seconds)()) {
  Ints sums[kPeakSums] = {};
  double start = seconds();
  for (int64_t i = 0; i < kPeakRounds; i++) {
    Ints operand = splat(static_cast<int32_t>(i));
#pragma GCC unroll 12
    for (int j = 0; j < kPeakSums; j++) sums[j] = dot4(sums[j], operand, operand);
  }
  double elapsed = seconds() - start;
  Ints total{};
  for (int j = 0; j < kPeakSums; j++) total ^= sums[j];
  return anyLane(total != 1) ? kPeakRounds * kPeakSums * kLanes * 8 / elapsed : 0;
}
