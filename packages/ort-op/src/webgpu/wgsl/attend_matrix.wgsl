// Attention on subgroup matrices: scores on 8-bit ones of 16 x 16 x 32 or, with FLOATS, for operands that are no 8-bit
// integers, on float16 ones of 16 x 16 x 16; the product with values on float16 ones that accumulate in float32.
//
// A workgroup has PAIRS times 32 query rows of one key/value head and 32 keys at a time. Two subgroups of 32 share 32 rows
// ("pair"): each multiplies 16 of the keys with all rows, weighs 16 of the rows, and accumulates half of the channels of
// all rows. While one tile is weighed, the next keys and these values go from registers to workgroup memory and the
// ones after them are loaded.
//
// Accumulators of matrix units can neither be read nor scaled by row, so the reference of a row must hardly ever move. It is
// the maximum of the row's first tile (Fused-Softmax, arXiv 2611.09225); weights, by Schraudolph's map straight to
// float16 bits, keep their precision from 2^-14 to 2^15 of it. (8-bit weights under one exponent have a range that
// random scores leave in every seventh tile of 128 rows.) Beyond that the reference rises, and what was accumulated
// goes through workgroup memory to be scaled.
//
// 8-bit values are integers under one scale for each channel, biased by 128; they become float16, exactly, on their way to
// workgroup memory. Their scores accumulate from 0x4B400000, so that their bits are those of the float 12582912 + score.
//
// Workgroup memory, bytes: of each pair scores 512 x SCORE_STRIDE, weights 2560, rows 256; keys 32 x (row + 16), values
// VALUE_SIZE x 80: 45 KiB for four pairs at 128 channels, 47 KiB with FLOATS. Rows are padded by 16 or 32 bytes against bank
// conflicts.

@group(0) @binding(0) var<uniform> problem: Problem;
@group(0) @binding(1) var<storage, read> queries: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> queryScales: array<f32>;
@group(0) @binding(3) var<storage, read> keys: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read> keyScales: array<f32>;
@group(0) @binding(5) var<storage, read> values: array<vec4<u32>>;
// The scales of the channels of each head, then for each head whether it is unsuited.
@group(0) @binding(6) var<storage, read> valueScales: array<vec4<f32>>;
@group(0) @binding(7) var<storage, read_write> output: array<Written>;
#if BIAS
@group(0) @binding(8) var<storage, read> bias: array<Word>;
#endif
#if SINKS
@group(0) @binding(9) var<storage, read> sinks: array<Word>;
#endif

#if FLOATS
alias Left = subgroup_matrix_left<f16, 16, 16>;
alias Right = subgroup_matrix_right<f16, 16, 16>;
alias Scores = subgroup_matrix_result<f32, 16, 16>;
const NO_SCORE = 0f;
const MAGIC = 0f;
// Channels of a 16-byte vector of a row.
const PER_VECTOR = 8u;
#else
alias Left = subgroup_matrix_left<i8, 32, 16>;
alias Right = subgroup_matrix_right<i8, 16, 32>;
alias Scores = subgroup_matrix_result<i32, 16, 16>;
const NO_SCORE = 0x4B400000;
const MAGIC = 12582912f;
const PER_VECTOR = 16u;
#endif
alias Weights = subgroup_matrix_left<f16, 16, 16>;
alias Values = subgroup_matrix_right<f16, 16, 16>;
alias Outputs = subgroup_matrix_result<f32, 16, 16>;

const ROWS = PAIRS * 32u;
const THREADS = PAIRS * 64u;
const TILE = 32u;
// Vectors of 16 bytes: of a row of queries and keys, of a padded row of keys, values, weights and scores.
const ROW_VECTORS = HEAD_SIZE / PER_VECTOR;
const KEY_STRIDE = ROW_VECTORS + 1u;
const VALUE_STRIDE = 5u;
const WEIGHT_STRIDE = 5u;
const CHANNELS = VALUE_SIZE / 2u;
// Of a block of 32 tokens.
const VALUE_VECTORS = VALUE_SIZE * 32u / PER_VECTOR;
const TILE_VECTORS = TILE * ROW_VECTORS;
// Invocations that copy a tile's keys, the first ones, and its values, the last ones.
const KEY_COPIERS = TILE_VECTORS / COPIES;
const VALUE_COPIERS = VALUE_VECTORS / COPIES;
// Matrices along the head.
const DEPTHS = ROW_VECTORS / 2u;
// Float16 bits are 1024 steps for each octave.
const STEPS = 1024f;
// Schraudolph's correction with the least rms ripple, and where the weight 1 lies.
const ONE = 15f - 60801f / 1048576f;
// Above the reference; the largest float16 is just below 2^16.
const HIGHEST = 15.9f;
// The reference of a row that has seen no key: above MASKED, below all else.
const UNSEEN = -3.2e38f;

var<workgroup> scores: array<array<vec4<u32>, 32u * SCORE_STRIDE>, PAIRS>;
var<workgroup> weights: array<array<vec4<u32>, 32u * WEIGHT_STRIDE>, PAIRS>;
var<workgroup> keyTile: array<array<vec4<u32>, 16u * KEY_STRIDE>, 2>;
var<workgroup> valueTile: array<array<vec4<u32>, CHANNELS * VALUE_STRIDE>, 2>;
// Of each row: the factor by which its accumulators must shrink, and in the end the normaliser.
var<workgroup> factors: array<f32, ROWS>;
// Whether any row of the workgroup needs more than the usual for this tile; whether accumulators must shift.
var<workgroup> unusual: u32;
var<workgroup> rescale: u32;

/**
 * Of a height above the reference, in STEPS of an octave: bits whose low half is the weight as a float16, above 0x4B400000.
 */
fn weight(height: f32) -> u32 {
  return bitcast<u32>(max(height, -ONE * STEPS) + (12582912f + ONE * STEPS));
}

/** Scores of four keys as the products left them, in log2 units, soft-capped, biased and masked. */
fn adjustedFour(products: vec4<f32>, unit: f32, row: Row, key: u32) -> vec4<f32> {
  let x = fma(products, vec4(unit), vec4(-MAGIC * unit));
  return vec4(
    adjusted(x.x, row, key),
    adjusted(x.y, row, key + 1u),
    adjusted(x.z, row, key + 2u),
    adjusted(x.w, row, key + 3u),
  );
}

/** The sum of four weights, as they are. */
fn total(words: vec2<u32>) -> f32 {
  let a = unpack2x16float(words.x);
  let b = unpack2x16float(words.y);
  return (a.x + a.y) + (b.x + b.y);
}

/** Two weights in a word. */
fn packed(low: u32, high: u32) -> u32 {
  return low + (high << 16u) - 0x4B400000u;
}

// A copier has COPIES times 16 bytes of a tile in registers from loading to placing.

alias Copied = array<vec4<u32>, COPIES>;

fn copiedKeys(at: u32, index: u32) -> Copied {
  var x: Copied;
#unroll i COPIES
  x[i] = keys[at + min(index, KEY_COPIERS - 1u) + i * KEY_COPIERS];
#end
  return x;
}

fn placeKeys(index: u32, x: Copied) {
  if (index >= KEY_COPIERS) { return; }
#unroll i COPIES
  {
    let vector = index + i * KEY_COPIERS;
    let key = vector / ROW_VECTORS;
    keyTile[key / 16u][key % 16u * KEY_STRIDE + vector % ROW_VECTORS] = x[i];
  }
#end
}

fn copiedValues(at: u32, index: u32) -> Copied {
  var x: Copied;
#unroll i COPIES
  x[i] = values[at + max(index, THREADS - VALUE_COPIERS) - (THREADS - VALUE_COPIERS) + i * VALUE_COPIERS];
#end
  return x;
}

fn placeValues(index: u32, x: Copied) {
  if (index < THREADS - VALUE_COPIERS) { return; }
#unroll i COPIES
  placeValue(index - (THREADS - VALUE_COPIERS) + i * VALUE_COPIERS, x[i]);
#end
}

#if FLOATS
fn placeValue(vector: u32, x: vec4<u32>) {
  let channel = vector / 4u;
  valueTile[channel / CHANNELS][channel % CHANNELS * VALUE_STRIDE + vector % 4u] = x;
}
#else
/** Bytes 0 and 2 of a word that are biased by 128, as float16. As low bits of 1024 they are the float16 1024 + byte. */
fn halves(word: u32) -> u32 {
  return bitcast<u32>(bitcast<vec2<f16>>((word & 0x00ff00ffu) | 0x64006400u) - vec2<f16>(1152h));
}

fn placeValue(vector: u32, x: vec4<u32>) {
  let channel = vector / 2u;
  let at = channel % CHANNELS * VALUE_STRIDE + vector % 2u * 2u;
  valueTile[channel / CHANNELS][at] = vec4(halves(x.x), halves(x.x >> 8u), halves(x.y), halves(x.y >> 8u));
  valueTile[channel / CHANNELS][at + 1u] = vec4(halves(x.z), halves(x.z >> 8u), halves(x.w), halves(x.w >> 8u));
}
#endif

#block multiplyValues
#unroll k 2u
{
  let weightsA = subgroupMatrixLoad<Weights, row_major>(&weights[pair], 2u * $k, WEIGHT_STRIDE);
  let weightsB = subgroupMatrixLoad<Weights, row_major>(&weights[pair], 16u * WEIGHT_STRIDE + 2u * $k, WEIGHT_STRIDE);
#unroll n VALUE_SIZE / 32u
  let values$n = subgroupMatrixLoad<Values, col_major>(&valueTile[member], 16u * $n * VALUE_STRIDE + 2u * $k, VALUE_STRIDE);
  outputA$n = subgroupMatrixMultiplyAccumulate(weightsA, values$n, outputA$n);
  outputB$n = subgroupMatrixMultiplyAccumulate(weightsB, values$n, outputB$n);
#end
}
#end
#endblock

@compute @workgroup_size(32, PAIRS * 2u)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(local_invocation_id) id: vec3<u32>,
  @builtin(local_invocation_index) index: u32,
) {
  let head = group.y;
  let heads = problem.kvHeads * problem.batch;
  if (bitcast<vec4<u32>>(valueScales[heads * (VALUE_SIZE / 4u) + head / 4u])[head % 4u] != 0u) { return; }
  let lane = id.x;
  let subgroup = subgroupBroadcastFirst(id.y);
  let pair = subgroup / 2u;
  let member = subgroup % 2u;
  let firstRow = group.x * ROWS;
  let pairRow = firstRow + pair * 32u;
  let rows = groupRows(problem);
  let queriesAt = (head * rows + pairRow) * ROW_VECTORS;
  let keysAt = head * problem.keyRows * ROW_VECTORS;
  let valuesAt = head * problem.valueBlocks * VALUE_VECTORS;
  let visible = visibleToAny(firstRow, ROWS);
  let firstTile = visible.x / TILE;
  let lastTile = max((visible.y + TILE - 1u) / TILE, firstTile + 1u) - 1u;

#unroll b DEPTHS
  let queryA$b = subgroupMatrixLoad<Left, row_major>(&queries, queriesAt + 2u * $b, ROW_VECTORS);
  let queryB$b = subgroupMatrixLoad<Left, row_major>(&queries, queriesAt + 16u * ROW_VECTORS + 2u * $b, ROW_VECTORS);
#end
#unroll n VALUE_SIZE / 32u
  var outputA$n = Outputs(0f);
  var outputB$n = Outputs(0f);
#end

  // The row that this invocation weighs; its neighbour has the other keys of it.
  let rowOfPair = member * 16u + (lane >> 1u);
  let odd = lane & 1u;
  let scoresAt = rowOfPair * SCORE_STRIDE + odd;
  let weightsAt = rowOfPair * WEIGHT_STRIDE + odd * 2u;
  let queryScale = queryScales[head * rows + min(pairRow + rowOfPair, rows - 1u)];
  var reference = UNSEEN;
  var sum = 0f;
  let keyScalesAt = head * (problem.keyRows / TILE);
  // Tiles from firstUsual on, but for those that reach beyond usualEnd, are as usual: rows have their references, and masks
  // leave their scores alone or, where a bias has to be looked up anyway, are applied with it.
#if ADJUSTED
  let firstUsual = firstTile + 1u;
  let usualEnd = (lastTile + 1u) * TILE;
  let row = rowOf(head, min(pairRow + rowOfPair, rows - 1u));
#else
  let clear = visibleToAll(firstRow, ROWS);
  let firstUsual = max(firstTile, (clear.x + TILE - 1u) / TILE) + 1u;
  let usualEnd = clear.y;
#endif
  placeKeys(index, copiedKeys(keysAt + firstTile * TILE_VECTORS, index));
  var nextKeys = copiedKeys(keysAt + min(firstTile + 1u, lastTile) * TILE_VECTORS, index);
  var nextValues = copiedValues(valuesAt + firstTile * VALUE_VECTORS, index);
  var keyScale = keyScales[keyScalesAt + firstTile];
  workgroupBarrier();
  var tile = firstTile;
  // Of the current tile.
  var unit: f32;
  loop {
    // Tiles in which all is as usual; the others leave the loop in the middle. Accumulators and
    // queries take 96 of an invocation's registers: what is rare must not take any.
    for (; tile <= lastTile; tile++) {
      {
        var scoresA = Scores(NO_SCORE);
        var scoresB = Scores(NO_SCORE);
#unroll b DEPTHS
        let keys$b = subgroupMatrixLoad<Right, col_major>(&keyTile[member], 2u * $b, KEY_STRIDE);
        scoresA = subgroupMatrixMultiplyAccumulate(queryA$b, keys$b, scoresA);
        scoresB = subgroupMatrixMultiplyAccumulate(queryB$b, keys$b, scoresB);
#end
        subgroupMatrixStore<row_major>(&scores[pair], member * 4u, scoresA, SCORE_STRIDE);
        subgroupMatrixStore<row_major>(&scores[pair], member * 4u + 16u * SCORE_STRIDE, scoresB, SCORE_STRIDE);
      }
      unit = queryScale * keyScale;
      workgroupBarrier();
      placeKeys(index, nextKeys);
      placeValues(index, nextValues);
      nextKeys = copiedKeys(keysAt + min(tile + 2u, lastTile) * TILE_VECTORS, index);
      nextValues = copiedValues(valuesAt + min(tile + 1u, lastTile) * VALUE_VECTORS, index);
      keyScale = keyScales[keyScalesAt + min(tile + 1u, lastTile)];
      if (tile < firstUsual || (tile + 1u) * TILE > usualEnd) { break; }
#if !ADJUSTED
      // Both exact: units are powers of two, and references multiples of them.
      let step = unit * STEPS;
      let start = (-MAGIC * unit - reference) * STEPS;
#endif
      var top = 0u;
      var tileSum = 0f;
      var words: array<vec2<u32>, 4>;
#unroll i 4u
      {
        let x = bitcast<vec4<f32>>(scores[pair][scoresAt + 2u * $i]);
#if ADJUSTED
        let heights = (adjustedFour(x, unit, row, tile * TILE + 4u * odd + 8u * $i) - reference) * STEPS;
#else
        let heights = fma(x, vec4(step), vec4(start));
#endif
        let w0 = weight(heights.x);
        let w1 = weight(heights.y);
        let w2 = weight(heights.z);
        let w3 = weight(heights.w);
        top = max(max(top, max(w0, w1)), max(w2, w3));
        words[$i] = vec2(packed(w0, w2), packed(w1, w3));
        tileSum += total(words[$i]);
      }
#end
      weights[pair][weightsAt] = vec4(words[0], words[1]);
      weights[pair][weightsAt + 1u] = vec4(words[2], words[3]);
      if (top >= 0x4B400000u + 0x7C00u) { unusual = 1u; }
      if (workgroupUniformLoad(&unusual) != 0u) { break; }
      sum += tileSum;
#use multiplyValues
    }
    if (tile > lastTile) { break; }

    if (index == 0u) { unusual = 0u; }
#if !ADJUSTED
    let row = rowOf(head, min(pairRow + rowOfPair, rows - 1u));
#endif
    var largest = MASKED;
    for (var i = 0u; i < 4u; i++) {
      let key = tile * TILE + 4u * odd + 8u * i;
      let s = adjustedFour(bitcast<vec4<f32>>(scores[pair][scoresAt + 2u * i]), unit, row, key);
      scores[pair][scoresAt + 2u * i] = bitcast<vec4<u32>>(s);
      largest = max(largest, max(max(s.x, s.y), max(s.z, s.w)));
    }
    largest = max(largest, subgroupShuffleXor(largest, 1u));
    var factor = 1f;
    if (reference == UNSEEN || largest - reference > HIGHEST) {
      // A multiple of the unit of the scores: then it can be subtracted exactly.
      let moved = select(largest, ceil(largest / unit) * unit, abs(largest) < unit * 4194304f);
      if (largest != MASKED) {
        factor = select(exp2(reference - moved), 1f, reference == UNSEEN);
        reference = moved;
      }
    }
    factors[pair * 32u + rowOfPair] = factor;
    if (factor != 1f) {
      sum *= factor;
      rescale = 1u;
    }
    for (var i = 0u; i < 4u; i++) {
      let x = (bitcast<vec4<f32>>(scores[pair][scoresAt + 2u * i]) - vec4(reference)) * STEPS;
      let w = vec4(weight(x.x), weight(x.y), weight(x.z), weight(x.w));
      let words = vec2(packed(w.x, w.z), packed(w.y, w.w));
      sum += total(words);
      weights[pair][weightsAt + i / 2u][2u * i % 4u] = words.x;
      weights[pair][weightsAt + i / 2u][2u * i % 4u + 1u] = words.y;
    }
    if (workgroupUniformLoad(&rescale) != 0u) {
      if (index == 0u) { rescale = 0u; }
#unroll n VALUE_SIZE / 32u
      subgroupMatrixStore<row_major>(&scores[pair], member * 128u, outputA$n, 4u);
      subgroupMatrixStore<row_major>(&scores[pair], member * 128u + 64u, outputB$n, 4u);
      workgroupBarrier();
      for (var i = lane; i < 128u; i += 32u) {
        let x = bitcast<vec4<f32>>(scores[pair][member * 128u + i]);
        scores[pair][member * 128u + i] = bitcast<vec4<u32>>(x * factors[pair * 32u + i / 4u]);
      }
      workgroupBarrier();
      outputA$n = subgroupMatrixLoad<Outputs, row_major>(&scores[pair], member * 128u, 4u);
      outputB$n = subgroupMatrixLoad<Outputs, row_major>(&scores[pair], member * 128u + 64u, 4u);
      workgroupBarrier();
#end
    }
#use multiplyValues
    tile++;
  }

  sum += subgroupShuffleXor(sum, 1u);
  var normaliser = sum;
#if SINKS
  let sink = rowOf(head, min(pairRow + rowOfPair, rows - 1u)).head;
  normaliser += exp2(elementOf(sinks[wordOf(sink)], sink) * LOG2E - reference);
#endif
  normaliser = select(1f / normaliser, 0f, reference == UNSEEN);
  factors[pair * 32u + rowOfPair] = select(normaliser, queryScale, isNaN(queryScale));
#unroll n VALUE_SIZE / 32u
  workgroupBarrier();
  subgroupMatrixStore<row_major>(&scores[pair], member * 128u, outputA$n, 4u);
  subgroupMatrixStore<row_major>(&scores[pair], member * 128u + 64u, outputB$n, 4u);
  workgroupBarrier();
  for (var i = lane; i < 128u; i += 32u) {
    let r = i / 4u;
    let channel = (member * CHANNELS + 16u * $n) / 4u + i % 4u;
    if (pairRow + r < rows) {
      let x = bitcast<vec4<f32>>(scores[pair][member * 128u + i]);
      writeOutput(head, pairRow + r, channel, x * (valueScales[head * (VALUE_SIZE / 4u) + channel] * factors[pair * 32u + r]));
    }
  }
#end
}

fn writeOutput(head: u32, index: u32, channel: u32, x: vec4<f32>) {
  let row = rowOf(head, index);
  let at = row.batch * problem.outputStrides.x + row.head * problem.outputStrides.y + row.query * problem.outputStrides.z;
  writeFour(at, 4u * channel, x);
}
