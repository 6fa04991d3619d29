// Products of bytes, added up as the kernel does it.

// As floatPeak: operations a second on this thread, two for every product.
double bytePeak(double (*seconds)()) {
  Sums sums[kPeakSums] = {};
  return bestRate(8. * kPeakRounds * kPeakSums * kLanes, seconds, [&] {
    Ints u = splat(0x01020304), s = splat(0x04030201);
    for (int64_t i = 0; i < kPeakRounds; i++) {
#pragma GCC unroll 12
      for (int j = 0; j < kPeakSums; j++) {
        // Operands that the compiler knows nothing of, so that every product is computed.
        opaque(u);
        sums[j] = multiplyAdd(sums[j], u, s);
      }
    }
    for (int j = 0; j < kPeakSums; j++) opaque(sums[j]);
  });
}
