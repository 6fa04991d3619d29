// AVX-512 with AMX and BF16: matrix tiles multiply 16 rows by 16 columns of int8, 32 deep, in one instruction.
#include <immintrin.h>

#include "cpu/includes.h"

namespace mxattn::cpu::avx512_vnni {
void run(const Problem& problem, const Parallel& parallel, Scratch& scratch);
}

namespace mxattn::cpu::avx512_amx {

#include "cpu/avx512.h"
#include "cpu/avx512_dot.h"

// Tiles multiply signed by signed bytes.
constexpr uint8_t kKeyOffset = 0;

#include "cpu/block_scaled.h"
#include "cpu/half.h"
#include "cpu/kernel.h"
#include "cpu/avx512_pairs.h"
#include "cpu/matrix_tiles.h"
#include "cpu/bf16_tiles.h"
#include "cpu/peak.h"
#include "cpu/matrix_peak.h"

void run(const Problem& problem, const Parallel& parallel, Scratch& scratch) {
  // A tile multiplies 16 rows or none. Caches are the same for both builds, which have as many lanes.
  bool fewRows = problem.heads / problem.kvHeads * problem.queryLength < BlockScaledEngine::kFewRows;
  if (fewRows) {
    avx512_vnni::run(problem, parallel, scratch);
  } else {
    attendWith<MatrixTileEngine, Bf16TileEngine>(problem, parallel, scratch);
  }
}

}  // namespace mxattn::cpu::avx512_amx
