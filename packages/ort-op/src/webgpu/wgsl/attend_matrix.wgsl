// Attention on 8-bit subgroup matrices of 16 x 16 x 32.
//
// A workgroup has PAIRS times 32 query rows of one key/value head and 32 keys at a time. Two subgroups of 32 share 32 rows ("pair"): each
// multiplies 16 of the keys with all rows, weighs 16 of the rows, and accumulates half of the channels of all rows.
// While one tile is weighed, the next keys and these values go from registers to workgroup memory and the ones after
// them are loaded.
//
// Accumulators of matrix units can neither be read nor scaled by row, so weights are bytes under one exponent for each
// row: a weight is 2^(score - low - 8), by Schraudolph's map (arXiv 2611.09225) with 8 fraction bits, rounded to an
// integer of 0 to 252. Values are bytes biased by 128; what that adds is 128 times the row's sum of weights, which is
// subtracted at the end. The first tile's maximum gets the weight 32. Higher scores up to 252 fit; beyond, `low` rises
// by whole powers of two and everything accumulated shifts right. Where all weights of a tile are below 2 and what is
// to come may still count, `low` falls and everything shifts left: after a hot first key the rest does not vanish.
//
// Scores accumulate from 0x4B400000, so that their bits are those of the float 12582912 + score.
//
// Workgroup memory, bytes: of each pair scores 5120, weights 1536, rows 384; keys 32 x (HEAD_SIZE + 16), values
// VALUE_SIZE x 48: 24.3 KiB for two pairs at 128 channels. Rows are padded by 16 or 32 bytes against bank conflicts.

@group(0) @binding(0) var<uniform> problem: Problem;
@group(0) @binding(1) var<storage, read> queries: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> queryScales: array<f32>;
@group(0) @binding(3) var<storage, read> keys: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read> keyScales: array<f32>;
@group(0) @binding(5) var<storage, read> values: array<vec4<u32>>;
// The scales of the channels of each head, then for each head whether it is unsuited.
@group(0) @binding(6) var<storage, read> valueScales: array<vec4<f32>>;
@group(0) @binding(7) var<storage, read_write> output: array<vec4<f32>>;
#if BIAS
@group(0) @binding(8) var<storage, read> bias: array<f32>;
#endif
#if SINKS
@group(0) @binding(9) var<storage, read> sinks: array<f32>;
#endif

alias Left = subgroup_matrix_left<i8, 32, 16>;
alias Right = subgroup_matrix_right<i8, 16, 32>;
alias Scores = subgroup_matrix_result<i32, 16, 16>;
alias Weights = subgroup_matrix_left<u8, 32, 16>;
alias Values = subgroup_matrix_right<u8, 16, 32>;
alias Outputs = subgroup_matrix_result<u32, 16, 16>;

const ROWS = PAIRS * 32u;
const THREADS = PAIRS * 64u;
const TILE = 32u;
const MAGIC = 12582912f;
// Vectors of 16 bytes: of a row of queries and keys, of a padded row of keys, values, weights and scores.
const ROW_VECTORS = HEAD_SIZE / 16u;
const KEY_STRIDE = ROW_VECTORS + 1u;
const VALUE_STRIDE = 3u;
const WEIGHT_STRIDE = 3u;
const SCORE_STRIDE = 10u;
const CHANNELS = VALUE_SIZE / 2u;
const TILE_VECTORS = TILE * ROW_VECTORS;
// Range of the exponential: 16 octaves of 256 steps, of which the last 8 would round to 256.
const OCTAVES = 16f;
const HIGHEST = 16f - 8f / 256f;
// Where the first maximum comes to lie above `low`: a weight of 2^5.
const HEIGHT = 13f;
// Of a tile whose weights are all below 2.
const LOWEST_HEIGHT = 9f;
// Schraudolph's map without a correction is that much too high on average; only a sink needs to know.
const CORRECTION = 60801f / 1048576f;
// `low` of a row that has seen no key: above MASKED, below all else.
const UNSEEN = -3.2e38f;
// What u8 products may add up to in all: 2^24 times 255 fits a u32.
const LARGEST_SUM = 16777216f;

var<workgroup> scores: array<array<vec4<u32>, 32u * SCORE_STRIDE>, PAIRS>;
var<workgroup> weights: array<array<vec4<u32>, 32u * WEIGHT_STRIDE>, PAIRS>;
var<workgroup> keyTile: array<array<vec4<u32>, 16u * KEY_STRIDE>, 2>;
var<workgroup> valueTile: array<array<vec4<u32>, CHANNELS * VALUE_STRIDE>, 2>;
// Of each row: by how many bits the accumulators shift; in the end the normaliser and the sum of weights.
var<workgroup> shifts: array<i32, ROWS>;
var<workgroup> normalisers: array<f32, ROWS>;
var<workgroup> sums: array<f32, ROWS>;
// Whether any row of the workgroup needs more than the usual for this tile; whether accumulators must shift.
var<workgroup> unusual: u32;
var<workgroup> rescale: u32;

/**
 * Of a height above `low`, in units of OCTAVES: bits whose low byte is the weight, above those of 2^23. A height above HIGHEST
 * spills into the next byte.
 */
fn weight(height: f32) -> u32 {
  // The low 16 bits of the first sum are the top bits of the float 2^(-8 + OCTAVES * height), one too far right.
  let exponential = bitcast<u32>(fma(saturate(height), OCTAVES * 256f, MAGIC + 119f * 256f)) << 15u;
  return bitcast<u32>(bitcast<f32>(exponential) + 8388608f);
}

/** The height above which what is to come, were all of it as high, counts against the sum of weights so far. */
fn fallHeight(sum: f32, remaining: f32) -> f32 {
  return 8f - 5f + log2(max(sum, 1e-6f) / remaining);
}

/**
 * By how many octaves `low` must move for a tile whose largest score lies at this height.
 *
 * @param sum of the weights so far.
 * @param remaining keys from this tile on.
 */
fn shiftFor(height: f32, sum: f32, remaining: f32) -> f32 {
  if (height > HIGHEST) { return ceil(height - HIGHEST); }
  if (height < LOWEST_HEIGHT && height > fallHeight(sum, remaining)) {
    let room = floor(log2((LARGEST_SUM - 252f * remaining) / max(sum, 1f)));
    return -max(min(ceil(HEIGHT - height), room), 0f);
  }
  return 0f;
}

fn packedWeights(heights: vec4<f32>) -> u32 {
  return weight(heights.x) + (weight(heights.y) << 8u) + (weight(heights.z) << 16u) + (weight(heights.w) << 24u)
    - 0x4B000000u;
}

fn shiftedBy(x: vec4<u32>, bits: i32) -> vec4<u32> {
  if (bits <= 0) { return x << vec4(u32(-bits)); }
  let right = u32(min(bits, 31));
  return (x + vec4((1u << right) >> 1u)) >> vec4(right);
}

// Keys and values of a tile are copied by all invocations, OPERAND_LOADS times 16 bytes each.

fn placeKey(vector: u32, x: vec4<u32>) {
  let key = vector / ROW_VECTORS;
  keyTile[key / 16u][key % 16u * KEY_STRIDE + vector % ROW_VECTORS] = x;
}

fn placeValue(vector: u32, x: vec4<u32>) {
  let channel = vector / 2u;
  valueTile[channel / CHANNELS][channel % CHANNELS * VALUE_STRIDE + vector % 2u] = x;
}

#block multiplyValues
{
  let weightsA = subgroupMatrixLoad<Weights, row_major>(&weights[pair], 0u, WEIGHT_STRIDE);
  let weightsB = subgroupMatrixLoad<Weights, row_major>(&weights[pair], 16u * WEIGHT_STRIDE, WEIGHT_STRIDE);
#unroll n VALUE_SIZE / 32u
  let values$n = subgroupMatrixLoad<Values, col_major>(&valueTile[member], 16u * $n * VALUE_STRIDE, VALUE_STRIDE);
  outputA$n = subgroupMatrixMultiplyAccumulate(weightsA, values$n, outputA$n);
  outputB$n = subgroupMatrixMultiplyAccumulate(weightsB, values$n, outputB$n);
#end
}
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
  let valuesAt = head * problem.valueBlocks * VALUE_SIZE * 2u;
  let visible = visibleToAny(firstRow, ROWS);
  let firstTile = visible.x / TILE;
  let lastTile = max((visible.y + TILE - 1u) / TILE, firstTile + 1u) - 1u;
  // Tiles in which every row of the workgroup sees every key.
  let clear = visibleToAll(firstRow, ROWS);

#unroll b HEAD_SIZE / 32u
  let queryA$b = subgroupMatrixLoad<Left, row_major>(&queries, queriesAt + 2u * $b, ROW_VECTORS);
  let queryB$b = subgroupMatrixLoad<Left, row_major>(&queries, queriesAt + 16u * ROW_VECTORS + 2u * $b, ROW_VECTORS);
#end
#unroll n VALUE_SIZE / 32u
  var outputA$n = Outputs(0u);
  var outputB$n = Outputs(0u);
#end

  // The row that this invocation weighs; its neighbour has the other keys of it.
  let rowOfPair = member * 16u + (lane >> 1u);
  let odd = lane & 1u;
  let scoresAt = rowOfPair * SCORE_STRIDE + odd;
  let queryScale = queryScales[head * rows + min(pairRow + rowOfPair, rows - 1u)];
  var low = UNSEEN;
  var sum = 0f;

#unroll i OPERAND_LOADS
  placeKey(index + $iu * THREADS, keys[keysAt + firstTile * TILE_VECTORS + index + $iu * THREADS]);
  var nextKeys$i = keys[keysAt + min(firstTile + 1u, lastTile) * TILE_VECTORS + index + $iu * THREADS];
  var nextValues$i = values[valuesAt + firstTile * TILE_VECTORS + index + $iu * THREADS];
#end
  let keyScalesAt = head * (problem.keyRows / TILE);
  var keyScale = keyScales[keyScalesAt + firstTile];
  workgroupBarrier();
  var tile = firstTile;
  // Of the current tile; scores are unit * x + offset.
  var unit: f32;
  var tileSum: u32;
  loop {
    // Tiles in which all is as usual; the others leave the loop in the middle. Accumulators and
    // queries take 96 of an invocation's registers: what is rare must not take any.
    for (; tile <= lastTile; tile++) {
      {
        var scoresA = Scores(0x4B400000);
        var scoresB = Scores(0x4B400000);
#unroll b HEAD_SIZE / 32u
        let keys$b = subgroupMatrixLoad<Right, col_major>(&keyTile[member], 2u * $b, KEY_STRIDE);
        scoresA = subgroupMatrixMultiplyAccumulate(queryA$b, keys$b, scoresA);
        scoresB = subgroupMatrixMultiplyAccumulate(queryB$b, keys$b, scoresB);
#end
        subgroupMatrixStore<row_major>(&scores[pair], member * 4u, scoresA, SCORE_STRIDE);
        subgroupMatrixStore<row_major>(&scores[pair], member * 4u + 16u * SCORE_STRIDE, scoresB, SCORE_STRIDE);
      }
      unit = queryScale * keyScale;
      workgroupBarrier();
#unroll i OPERAND_LOADS
      placeKey(index + $iu * THREADS, nextKeys$i);
      placeValue(index + $iu * THREADS, nextValues$i);
      nextKeys$i = keys[keysAt + min(tile + 2u, lastTile) * TILE_VECTORS + index + $iu * THREADS];
      nextValues$i = values[valuesAt + min(tile + 1u, lastTile) * TILE_VECTORS + index + $iu * THREADS];
#end
      keyScale = keyScales[keyScalesAt + min(tile + 1u, lastTile)];
#if ADJUSTED
      if (true) {
#else
      if (tile * TILE < clear.x || (tile + 1u) * TILE > clear.y) {
#endif
        unusual = 1u;
      } else {
        let offset = -MAGIC * unit;
        let step = unit * (1f / OCTAVES);
        let start = (offset - low) * (1f / OCTAVES);
        var top = vec4<f32>();
        tileSum = 0u;
#unroll i 4u
        let x$i = bitcast<vec4<f32>>(scores[pair][scoresAt + 2u * $i]);
        top = max(top, x$i);
        let word$i = packedWeights(fma(x$i, vec4(step), vec4(start)));
        tileSum += dot4U8Packed(word$i, 0x01010101u);
#end
        weights[pair][rowOfPair * WEIGHT_STRIDE + odd] = vec4(word0, word1, word2, word3);
        let half = max(max(top.x, top.y), max(top.z, top.w));
        let height = fma(max(half, subgroupShuffleXor(half, 1u)), unit, offset) - low;
        let remaining = f32((lastTile + 1u - tile) * TILE);
        if (height > HIGHEST || (height < LOWEST_HEIGHT && height > fallHeight(sum, remaining))) { unusual = 1u; }
      }
      if (workgroupUniformLoad(&unusual) != 0u) { break; }
      sum += f32(tileSum);
#use multiplyValues
    }
    if (tile > lastTile) { break; }

    if (index == 0u) { unusual = 0u; }
    let row = rowOf(head, min(pairRow + rowOfPair, rows - 1u));
    var largest = MASKED;
    for (var i = 0u; i < 4u; i++) {
      let key = tile * TILE + 4u * odd + 8u * i;
      let x = fma(bitcast<vec4<f32>>(scores[pair][scoresAt + 2u * i]), vec4(unit), vec4(-MAGIC * unit));
      let s = vec4(
        adjusted(x.x, row, key),
        adjusted(x.y, row, key + 1u),
        adjusted(x.z, row, key + 2u),
        adjusted(x.w, row, key + 3u),
      );
      scores[pair][scoresAt + 2u * i] = bitcast<vec4<u32>>(s);
      largest = max(largest, max(max(s.x, s.y), max(s.z, s.w)));
    }
    largest = max(largest, subgroupShuffleXor(largest, 1u));
    // Both invocations of a row come to the same decision.
    let total = sum + subgroupShuffleXor(sum, 1u);
    var shift = 0f;
    if (low != UNSEEN) {
      shift = shiftFor(largest - low, total, f32((lastTile + 1u - tile) * TILE));
      low += shift;
    } else if (largest != MASKED) {
      // A multiple of the unit of the scores: then the offset above is exact.
      low = select(floor((largest - HEIGHT) / unit) * unit, largest - HEIGHT, unit == 0f);
    }
    shifts[pair * 32u + rowOfPair] = i32(clamp(shift, -31f, 31f));
    if (shift != 0f) {
      sum *= exp2(-shift);
      rescale = 1u;
    }
    for (var i = 0u; i < 4u; i++) {
      let s = bitcast<vec4<f32>>(scores[pair][scoresAt + 2u * i]);
      let word = packedWeights((s - vec4(low)) * (1f / OCTAVES));
      weights[pair][rowOfPair * WEIGHT_STRIDE + odd][i] = word;
      sum += f32(dot4U8Packed(word, 0x01010101u));
    }
    if (workgroupUniformLoad(&rescale) != 0u) {
      if (index == 0u) { rescale = 0u; }
#unroll n VALUE_SIZE / 32u
      subgroupMatrixStore<row_major>(&scores[pair], member * 128u, outputA$n, 4u);
      subgroupMatrixStore<row_major>(&scores[pair], member * 128u + 64u, outputB$n, 4u);
      workgroupBarrier();
      for (var i = lane; i < 128u; i += 32u) {
        scores[pair][member * 128u + i] = shiftedBy(scores[pair][member * 128u + i], shifts[pair * 32u + i / 4u]);
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
  let row = rowOf(head, min(pairRow + rowOfPair, rows - 1u));
  normaliser += exp2(sinks[row.head] * LOG2E - low - 8f + CORRECTION);
#endif
  normaliser = select(1f / normaliser, 0f, low == UNSEEN);
  normalisers[pair * 32u + rowOfPair] = select(normaliser, queryScale, isNaN(queryScale));
  sums[pair * 32u + rowOfPair] = sum;
#unroll n VALUE_SIZE / 32u
  workgroupBarrier();
  subgroupMatrixStore<row_major>(&scores[pair], member * 128u, outputA$n, 4u);
  subgroupMatrixStore<row_major>(&scores[pair], member * 128u + 64u, outputB$n, 4u);
  workgroupBarrier();
  for (var i = lane; i < 128u; i += 32u) {
    let r = i / 4u;
    let channel = (member * CHANNELS + 16u * $n) / 4u + i % 4u;
    if (pairRow + r < rows) {
      let x = vec4<f32>(scores[pair][member * 128u + i]) - vec4(128f * sums[pair * 32u + r]);
      writeOutput(head, pairRow + r, channel, x * (valueScales[head * (VALUE_SIZE / 4u) + channel] * normalisers[pair * 32u + r]));
    }
  }
#end
}

fn writeOutput(head: u32, index: u32, channel: u32, x: vec4<f32>) {
  let row = rowOf(head, index);
  let at = row.batch * problem.outputStrides.x + row.head * problem.outputStrides.y + row.query * problem.outputStrides.z;
  output[at / 4u + channel] = x;
}
