// Fused-Softmax attention (arXiv 2611.09225) on operands that were rounded to E4M3 blocks and are float32 again, for every
// length and head size. Weights are E4M3 with the scale 1. No device multiplies E4M3 in standard WGSL: this is for
// exactness, and attend_matrix.wgsl for speed.
//
// An invocation has a query row and VALUE_CHUNK output channels of it; a workgroup has ROWS rows of one key/value head and
// half of the recipe's tile at a time. Query and keys pass through in chunks of 32 channels, values in groups of 16 tokens. A
// reference that rises in the second half of a tile rescales the weights of the first, which the emulation weighs anew.
//
// Workgroup memory: at most 16 tokens x 128 channels x 4 bytes = 8192 bytes, in which keys and values alternate.

@group(0) @binding(0) var<uniform> problem: Problem;
@group(0) @binding(1) var<storage, read> queries: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> keys: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> values: array<vec4<f32>>;
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
const TILE = 64u;
const HALF_TILE = 32u;
const CHUNK_VECTORS = 8u;
const TOKENS = 16u;
const VECTORS = VALUE_CHUNK / 4u;
const ROW_VECTORS = HEAD_BLOCKS * 8u;

var<workgroup> staged: array<vec4<f32>, 512>;
// Whether any row of the workgroup has no reference yet.
var<workgroup> unmeasured: u32;

@compute @workgroup_size(ROWS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
#if MARKS
  if (unsuited[group.y] == 0u) { return; }
#endif
  let firstRow = group.x * ROWS;
  let rows = groupRows(problem);
  let row = rowOf(group.y, min(firstRow + thread, rows - 1u));
  let firstChannel = group.z * VALUE_CHUNK;
  let queryAt = ((row.batch * problem.heads + row.head) * problem.queryLength + row.query) * ROW_VECTORS;
  let keysAt = group.y * problem.keyRows;

  var accumulated: array<vec4<f32>, VECTORS>;
  var sum = 0f;
  var reference = MASKED;

  let visible = visibleToAny(firstRow, ROWS);
  for (var tile = visible.x / TILE * TILE; tile < visible.y; tile += TILE) {
    // Where a row has no reference yet, the whole tile is measured before its first half is weighed.
    if (reference == MASKED) { unmeasured = 1u; }
    let steps = select(2u, 4u, workgroupUniformLoad(&unmeasured) != 0u);
    if (thread == 0u) { unmeasured = 0u; }
    var largest = MASKED;
    var worst = 0u;
    for (var step = 0u; step < steps; step++) {
      let first = tile + step % 2u * HALF_TILE;
      // Spelt out: an array without an initial value keeps that of the last iteration in some implementations.
      var scores = array<f32, HALF_TILE>();
      for (var chunk = 0u; chunk < HEAD_BLOCKS; chunk++) {
        var q = array<vec4<f32>, CHUNK_VECTORS>();
#unroll i CHUNK_VECTORS
        q[i] = queries[queryAt + chunk * CHUNK_VECTORS + i];
#end
        workgroupBarrier();
        for (var i = thread; i < HALF_TILE * CHUNK_VECTORS; i += ROWS) {
          let key = keysAt + first + i / CHUNK_VECTORS;
          staged[i] = keys[key * ROW_VECTORS + chunk * CHUNK_VECTORS + i % CHUNK_VECTORS];
        }
        workgroupBarrier();
#unroll key HALF_TILE
#unroll i CHUNK_VECTORS
        scores[key] += dot(q[i], staged[key * CHUNK_VECTORS + i]);
#end
#end
      }
      if (steps == 2u) {
        largest = MASKED;
        worst = 0u;
      }
#unroll key HALF_TILE
      scores[key] = adjusted(scores[key], row, first + key);
      largest = max(largest, scores[key]);
      worst = max(worst, bitcast<u32>(scores[key]) & 0x7fffffffu);
#end
      if (step + 2u < steps) { continue; }

      // NaN if any score is NaN or infinite.
      let moved = movedReference(reference, select(largest, notANumber(), worst >= 0x7f800000u));
      // By bits: a comparison with NaN may come out either way.
      if (bitcast<u32>(moved) != bitcast<u32>(reference)) {
        let factor = rescaling(reference, moved);
        sum *= factor;
#unroll i VECTORS
        accumulated[i] *= factor;
#end
        reference = moved;
      }
      // Masked scores are as low as the reference before any key is visible.
      let seen = reference != MASKED;
#unroll key HALF_TILE
      scores[key] = select(0f, weightE4m3(schraudolph(scores[key] - reference)), seen);
      sum += scores[key];
#end
      for (var part = 0u; part < HALF_TILE / TOKENS; part++) {
        workgroupBarrier();
        for (var i = thread; i < TOKENS * VECTORS; i += ROWS) {
          let token = keysAt + first + part * TOKENS + i / VECTORS;
          staged[i] = values[(token * VALUE_CHANNELS + firstChannel) / 4u + i % VECTORS];
        }
        workgroupBarrier();
#use addStaged
      }
    }
  }

#use writeRow
}
