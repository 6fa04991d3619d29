// Products of bytes in matrix tiles, two by two of them 64 deep.

// As floatPeak: operations a second on this thread, two for every product.
double bytePeak(double (*seconds)()) {
  TileShapes shapes;
  for (int i = 0; i < 8; i++) {
    shapes.rowBytes[i] = 64;
    shapes.rows[i] = 16;
  }
  _tile_loadconfig(&shapes);
  constexpr int64_t kRounds = 100'000;
  double best = bestRate(kRounds * 4. * 2 * 16 * 16 * 64, seconds, [] {
    for (int64_t i = 0; i < kRounds; i++) {
      _tile_dpbssd(0, 4, 6);
      _tile_dpbssd(1, 4, 7);
      _tile_dpbssd(2, 5, 6);
      _tile_dpbssd(3, 5, 7);
    }
  });
  _tile_release();
  return best;
}
