// Attention on packed operands with 8-bit dot products of standard WGSL, for every length and head size.
//
// A workgroup has ROWS query rows of one key/value head and 64 keys at a time; two invocations share a row. Each computes
// the scores of one block of 32 keys and their weights, then, for both blocks, half of the VALUE_CHUNK output channels.
// All that a row needs stays in registers but the weights. A product of blocks is an exact integer; accumulators start
// at 0x4B400000, so that the bits of the sum are those of the float 12582912 + sum: no conversion.
//
// Workgroup memory, bytes: operands 9216 (64 keys x 4 blocks, or 2 blocks x 128 channels, with their scales), weights
// 5120, scales of weights 512, maxima 512: 15360 of the 16384 that every device has.

@group(0) @binding(0) var<uniform> problem: Problem;
@group(0) @binding(1) var<storage, read> queries: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> keys: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> values: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read_write> output: array<Written>;
#if BIAS
@group(0) @binding(5) var<storage, read> bias: array<Word>;
#endif
#if SINKS
@group(0) @binding(6) var<storage, read> sinks: array<Word>;
#endif
#if MARKS
// For each head, whether it was left out by attend_matrix.wgsl.
@group(0) @binding(7) var<storage, read> unsuited: array<u32>;
#endif

const ROWS = 64u;
const THREADS = 128u;
const TILE = 64u;
const BLOCK = 32u;
const MAGIC = 12582912f;
const MAGIC_BITS = 0x4B400000i;
// Padded, so that rows lie in different banks.
const WEIGHT_STRIDE = 5u;
const CHANNELS = VALUE_CHUNK / 2u;

// By 16 keys, or by block and half of the channels. Inner indices are constants, so that no bounds are checked for them.
var<workgroup> operands: array<array<vec4<u32>, 128>, 4>;
var<workgroup> operandScales: array<array<vec4<f32>, 16>, 4>;
var<workgroup> weights: array<vec4<u32>, ROWS * WEIGHT_STRIDE>;
var<workgroup> weightScales: array<array<f32, ROWS>, 2>;
var<workgroup> partials: array<array<f32, ROWS>, 2>;

fn dot16(sum: i32, a: vec4<u32>, b: vec4<u32>) -> i32 {
  return sum + dot4I8Packed(a.x, b.x) + dot4I8Packed(a.y, b.y) + dot4I8Packed(a.z, b.z) + dot4I8Packed(a.w, b.w);
}

// Operands pass through registers, so that they are loaded while the previous ones are multiplied: 4 vectors and one
// of scales for each invocation.

struct Staged {
  vectors: array<vec4<u32>, 4>,
  scales: vec4<u32>,
}

/** CHUNK_BLOCKS blocks of the head axis of 64 keys, with their scales. */
fn loadKeys(first: u32, chunk: u32, thread: u32) -> Staged {
  var staged: Staged;
#unroll i 4u
  {
    let vector = thread + i * THREADS;
    if (i * THREADS < TILE * CHUNK_BLOCKS * 2u && vector < TILE * CHUNK_BLOCKS * 2u) {
      let key = first + vector / (CHUNK_BLOCKS * 2u);
      staged.vectors[i] = keys[key * ROW_VECTORS + chunk * (CHUNK_BLOCKS * 2u) + vector % (CHUNK_BLOCKS * 2u)];
    }
  }
#end
  if (thread < TILE) { staged.scales = keys[(first + thread) * ROW_VECTORS + HEAD_BLOCKS * 2u + chunk]; }
  return staged;
}

fn storeKeys(staged: Staged, thread: u32) {
#unroll i 4u
  {
    let vector = thread + i * THREADS;
    if (i * THREADS < TILE * CHUNK_BLOCKS * 2u && vector < TILE * CHUNK_BLOCKS * 2u) {
      operands[vector / (CHUNK_BLOCKS * 32u)][vector % (CHUNK_BLOCKS * 32u)] = staged.vectors[i];
    }
  }
#end
  if (thread < TILE) { operandScales[thread / 16u][thread % 16u] = bitcast<vec4<f32>>(staged.scales); }
}

/** Two blocks of tokens of VALUE_CHUNK channels. */
fn loadValues(firstBlock: u32, firstChannel: u32, thread: u32) -> Staged {
  var staged: Staged;
#unroll i 4u
  {
    let vector = thread + i * THREADS;
    if (vector < VALUE_CHUNK * 4u) {
      let at = (firstBlock + vector / (VALUE_CHUNK * 2u)) * VALUE_CHANNELS + firstChannel;
      staged.vectors[i] = values[at * 2u + vector % (VALUE_CHUNK * 2u)];
    }
  }
#end
  if (thread < VALUE_CHUNK / 2u) {
    let at = (firstBlock + thread / (VALUE_CHUNK / 4u)) * VALUE_CHANNELS + firstChannel;
    staged.scales = values[problem.valueScales + at / 4u + thread % (VALUE_CHUNK / 4u)];
  }
  return staged;
}

fn storeValues(staged: Staged, thread: u32) {
#unroll i 4u
  {
    let vector = thread + i * THREADS;
    if (vector < VALUE_CHUNK * 4u) { operands[vector / VALUE_CHUNK][vector % VALUE_CHUNK] = staged.vectors[i]; }
  }
#end
  if (thread < VALUE_CHUNK / 2u) {
    operandScales[thread / (CHANNELS / 4u)][thread % (CHANNELS / 4u)] = bitcast<vec4<f32>>(staged.scales);
  }
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
#if MARKS
  if (unsuited[group.y] == 0u) { return; }
#endif
  let half = thread / ROWS;
  let rowOfGroup = thread % ROWS;
  let firstRow = group.x * ROWS;
  let rows = groupRows(problem);
  let row = rowOf(group.y, min(firstRow + rowOfGroup, rows - 1u));
  let firstChannel = group.z * VALUE_CHUNK;
  let queryAt = ((row.batch * problem.heads + row.head) * problem.queryLength + row.query) * ROW_VECTORS;
  let keysAt = group.y * problem.keyRows;
  let valuesAt = group.y * problem.valueBlocks;

  var q: array<vec4<u32>, CHUNK_BLOCKS * 2u>;
  var queryScales: vec4<f32>;
#if ONE_CHUNK
#unroll i CHUNK_BLOCKS * 2u
  q[i] = queries[queryAt + i];
#end
  queryScales = bitcast<vec4<f32>>(queries[queryAt + HEAD_BLOCKS * 2u]);
#endif

  var accumulated: array<f32, CHANNELS>;
  var sum = 0f;
  var reference = MASKED;

  let visible = visibleToAny(firstRow, ROWS);
  // Keys that every row of the workgroup sees.
  let clear = visibleToAll(firstRow, ROWS);
  var staged = loadKeys(keysAt + visible.x / TILE * TILE, 0u, thread);
  for (var first = visible.x / TILE * TILE; first < visible.y; first += TILE) {
    // Spelt out: an array without an initial value keeps that of the last iteration in some implementations.
    var scores = array<f32, BLOCK>();
    for (var chunk = 0u; chunk < CHUNKS; chunk++) {
      workgroupBarrier();
      storeKeys(staged, thread);
#if !ONE_CHUNK
#unroll i CHUNK_BLOCKS * 2u
      q[i] = queries[queryAt + chunk * (CHUNK_BLOCKS * 2u) + i];
#end
      queryScales = bitcast<vec4<f32>>(queries[queryAt + HEAD_BLOCKS * 2u + chunk]);
#endif
      workgroupBarrier();
      if (chunk + 1u < CHUNKS) {
        staged = loadKeys(keysAt + first, chunk + 1u, thread);
      } else {
        staged = loadValues(valuesAt + first / BLOCK, firstChannel, thread);
      }
#unroll key BLOCK
      {
        let part = half * 2u + key / 16u;
        let at = key % 16u * (CHUNK_BLOCKS * 2u);
        let scales = operandScales[part][key % 16u];
#unroll b CHUNK_BLOCKS
        {
          let dot = dot16(
            dot16(MAGIC_BITS, q[2u * b], operands[part][at + 2u * b]),
            q[2u * b + 1u],
            operands[part][at + 2u * b + 1u],
          );
          let scaled = fma(bitcast<f32>(dot), queryScales[b], -MAGIC * queryScales[b]);
          scores[key] = fma(scaled, scales[b], scores[key]);
        }
#end
      }
#end
    }

    // The largest score of this block, NaN if any is NaN or infinite.
    var largest = MASKED;
#if ADJUSTED
    let isClear = false;
#else
    let isClear = first >= clear.x && first + TILE <= clear.y;
#endif
    var spoiled = false;
    if (isClear) {
      var sum = 0f;
#unroll key BLOCK
      largest = max(largest, scores[key]);
      sum += scores[key];
#end
      // NaN or infinite. By its bits: compilers may take 0 * x for 0.
      spoiled = (bitcast<u32>(sum) & 0x7f800000u) == 0x7f800000u;
    } else {
      var worst = 0u;
#unroll key BLOCK
      scores[key] = adjusted(scores[key], row, first + half * BLOCK + key);
      largest = max(largest, scores[key]);
      worst = max(worst, bitcast<u32>(scores[key]) & 0x7fffffffu);
#end
      spoiled = worst >= 0x7f800000u;
    }
    partials[half][rowOfGroup] = select(largest, notANumber(), spoiled);
    workgroupBarrier();

    storeValues(staged, thread);
    let a = partials[0][rowOfGroup];
    let b = partials[1][rowOfGroup];
    let moved = movedReference(reference, select(select(max(a, b), b, isNaN(b)), a, isNaN(a)));
    // By bits: a comparison with NaN may come out either way.
    if (bitcast<u32>(moved) != bitcast<u32>(reference)) {
      let factor = rescaling(reference, moved);
      sum *= factor;
#unroll c CHANNELS
      accumulated[c] *= factor;
#end
      reference = moved;
    }
    var scale = 0f;
    let top = schraudolph(largest - reference) & 0xffffu;
    if (reference != MASKED && top >= NEGLIGIBLE) {
      let exponent = weightExponent(top);
      scale = bitcast<f32>(exponent << 23u) * (1f / WEIGHT_STEPS);
      let inverse = WEIGHT_STEPS * bitcast<f32>((254u - exponent) << 23u);
      var total = 0u;
#unroll i 2u
      {
        var words: vec4<u32>;
#unroll j 4u
        words[j] = weightInteger(schraudolph(scores[16u * i + 4u * j] - reference), inverse)
          | (weightInteger(schraudolph(scores[16u * i + 4u * j + 1u] - reference), inverse) << 8u)
          | (weightInteger(schraudolph(scores[16u * i + 4u * j + 2u] - reference), inverse) << 16u)
          | (weightInteger(schraudolph(scores[16u * i + 4u * j + 3u] - reference), inverse) << 24u);
        total += dot4U8Packed(words[j], 0x01010101u);
#end
        weights[rowOfGroup * WEIGHT_STRIDE + half * 2u + i] = words;
      }
#end
      sum = fma(f32(total), scale, sum);
    }
    weightScales[half][rowOfGroup] = scale;
    workgroupBarrier();
    if (first + TILE < visible.y) { staged = loadKeys(keysAt + first + TILE, 0u, thread); }

    for (var block = 0u; block < 2u; block++) {
      let weightScale = weightScales[block][rowOfGroup];
      // A block without weights contributes nothing, whatever its values are.
      if (weightScale == 0f) { continue; }
      let w0 = weights[rowOfGroup * WEIGHT_STRIDE + block * 2u];
      let w1 = weights[rowOfGroup * WEIGHT_STRIDE + block * 2u + 1u];
      let part = block * 2u + half;
#unroll i CHANNELS / 4u
      {
        let scales = operandScales[part][i];
#unroll j 4u
        {
          let dot = dot16(
            dot16(MAGIC_BITS, w0, operands[part][8u * i + 2u * j]),
            w1,
            operands[part][8u * i + 2u * j + 1u],
          );
          let scaled = fma(bitcast<f32>(dot), weightScale, -MAGIC * weightScale);
          accumulated[4u * i + j] = fma(scaled, scales[j], accumulated[4u * i + j]);
        }
#end
      }
#end
    }
  }

  workgroupBarrier();
  partials[half][rowOfGroup] = sum;
  workgroupBarrier();
  if (firstRow + rowOfGroup >= rows) { return; }
  var total = partials[0][rowOfGroup] + partials[1][rowOfGroup];
#if SINKS
  total += exp2(elementOf(sinks[wordOf(row.head)], row.head) * LOG2E - reference);
#endif
  let at = row.batch * problem.outputStrides.x + row.head * problem.outputStrides.y + row.query * problem.outputStrides.z;
  let normaliser = normaliserOf(reference, total);
#unroll i CHANNELS / 4u
  {
    let x = vec4(
      normalised(accumulated[4u * i], normaliser),
      normalised(accumulated[4u * i + 1u], normaliser),
      normalised(accumulated[4u * i + 2u], normaliser),
      normalised(accumulated[4u * i + 3u], normaliser),
    );
    writeFour(at, firstChannel + half * CHANNELS + 4u * i, x);
  }
#end
}
