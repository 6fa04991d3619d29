// Which keys a row of scores sees, and what becomes of its scores before the softmax: soft cap, bias, masks. Scores are in
// log2 units.

// Masked scores. Below every finite score, which a bias of the lowest float may bring down to LOWEST_SCORE: a row whose
// keys all carry that one attends to all of them alike.
const MASKED = -3.4e38f;
const LOWEST_SCORE = -3.0e38f;

struct Row {
  batch: u32,
  head: u32,
  query: u32,
  // Keys [begin, end) are visible.
  begin: u32,
  end: u32,
#if BIAS
  bias: u32,
#endif
}

fn visibleBegin(query: u32) -> u32 {
  let position = i32(query) + i32(problem.keyLength) - i32(problem.queryLength);
  return u32(max(position - i32(problem.windowLeft), 0));
}

fn visibleEnd(query: u32) -> u32 {
  let position = i32(query) + i32(problem.keyLength) - i32(problem.queryLength);
  return min(u32(max(position + 1 + i32(problem.windowRight), 0)), problem.keyLength);
}

/** Row `index` of those that share a key/value head. */
fn rowOf(kvHeadOfBatch: u32, index: u32) -> Row {
  var row: Row;
  row.batch = kvHeadOfBatch / problem.kvHeads;
  row.head = kvHeadOfBatch % problem.kvHeads * (problem.heads / problem.kvHeads) + index / problem.queryLength;
  row.query = index % problem.queryLength;
  row.begin = visibleBegin(row.query);
  row.end = visibleEnd(row.query);
#if BIAS
  row.bias = row.batch * problem.biasStrides.x + row.head * problem.biasStrides.y + row.query * problem.biasStrides.z;
#endif
  return row;
}

/** Keys that any of `count` rows from `first` on may see. */
fn visibleToAny(first: u32, count: u32) -> vec2<u32> {
  let last = min(first + count, groupRows(problem)) - 1u;
  if (first / problem.queryLength == last / problem.queryLength) {
    return vec2(visibleBegin(first % problem.queryLength), visibleEnd(last % problem.queryLength));
  }
  return vec2(visibleBegin(0u), visibleEnd(problem.queryLength - 1u));
}

/** Keys that each of `count` rows from `first` on sees. */
fn visibleToAll(first: u32, count: u32) -> vec2<u32> {
  let last = min(first + count, groupRows(problem)) - 1u;
  if (first / problem.queryLength == last / problem.queryLength) {
    return vec2(visibleBegin(last % problem.queryLength), visibleEnd(first % problem.queryLength));
  }
  return vec2(visibleBegin(problem.queryLength - 1u), visibleEnd(0u));
}

fn isNaN(x: f32) -> bool {
  return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

/** NaN. No constant expression may be one, so its bits come from a number that is 0 and that no compiler knows. */
fn notANumber() -> f32 {
  return bitcast<f32>(0x7fc00000u | problem.queryStrides.w);
}

#if SOFTCAP
/** Without the overflow that large arguments may have; errors of tanh near 0 are those of 1 - 2 / (1 + e^2x). */
fn capped(score: f32) -> f32 {
  let x = clamp(score / problem.softcap, -15f, 15f);
  let e = exp2(x * (2f * LOG2E));
  let large = 1f - 2f / (1f + e);
  let square = x * x;
  let small = x * (1f + square * (-1f / 3f + square * (2f / 15f - square * (17f / 315f))));
  return problem.softcap * select(large, small, abs(x) < 0.1f);
}
#endif

fn adjusted(score: f32, row: Row, key: u32) -> f32 {
  var s = score;
#if SOFTCAP
  // A NaN passes: clamp() may turn it into a number.
  s = select(capped(s), s, isNaN(s));
#endif
#if BIAS
  // Keys past the end read what is there; they are masked below.
  let at = row.bias + key * problem.biasStrides.w;
  let value = elementOf(bias[wordOf(at)], at);
  let sum = s + value * LOG2E;
  s = select(max(sum, LOWEST_SCORE), sum, isNaN(sum));
  // Minus infinity masks whatever the score is, NaN included.
  s = select(s, MASKED, bitcast<u32>(value) == 0xff800000u);
#endif
  return select(MASKED, s, key >= row.begin && key < row.end);
}
