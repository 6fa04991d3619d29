// Attention in float32 with an online softmax: nothing is quantised.
//
// An invocation has a query row and VALUE_CHUNK output channels of it; a workgroup has ROWS rows of one key/value head and 32
// keys at a time. Query and keys pass through in chunks of 32 channels, values in groups of 16 tokens, so that any head
// size fits.
//
// Workgroup memory: at most 16 tokens x 128 channels x 4 bytes = 8192 bytes, in which keys and values alternate.

@group(0) @binding(0) var<uniform> problem: Problem;
#if QUADS
@group(0) @binding(1) var<storage, read> queries: array<Quad>;
@group(0) @binding(2) var<storage, read> keys: array<Quad>;
#else
@group(0) @binding(1) var<storage, read> queries: array<Word>;
@group(0) @binding(2) var<storage, read> keys: array<Word>;
#endif
#if VALUE_QUADS
@group(0) @binding(3) var<storage, read> values: array<Quad>;
#else
@group(0) @binding(3) var<storage, read> values: array<Word>;
#endif
@group(0) @binding(4) var<storage, read_write> output: array<Written>;
#if BIAS
@group(0) @binding(5) var<storage, read> bias: array<Word>;
#endif
#if SINKS
@group(0) @binding(6) var<storage, read> sinks: array<Word>;
#endif

const ROWS = 64u;
const TILE = 32u;
const CHUNK = 32u;
const TOKENS = 16u;
const VECTORS = VALUE_CHUNK / 4u;

var<workgroup> staged: array<vec4<f32>, 512>;

// Four channels of a row that begins at an element; those past the end are zeros.

fn fourOfQuery(row: u32, channel: u32) -> vec4<f32> {
#if QUADS
  if (channel >= HEAD_SIZE) { return vec4<f32>(); }
  return fourOf(queries[(row + channel) / 4u]);
#else
  let at = row + channel;
  // Of the channels past the end what is there is read, and replaced.
  let x = vec4(
    elementOf(queries[wordOf(at)], at),
    elementOf(queries[wordOf(at + 1u)], at + 1u),
    elementOf(queries[wordOf(at + 2u)], at + 2u),
    elementOf(queries[wordOf(at + 3u)], at + 3u),
  );
  return select(vec4<f32>(), x, vec4(channel, channel + 1u, channel + 2u, channel + 3u) < vec4(HEAD_SIZE));
#endif
}

fn fourOfKey(row: u32, channel: u32) -> vec4<f32> {
#if QUADS
  if (channel >= HEAD_SIZE) { return vec4<f32>(); }
  return fourOf(keys[(row + channel) / 4u]);
#else
  let at = row + channel;
  // Of the channels past the end what is there is read, and replaced.
  let x = vec4(
    elementOf(keys[wordOf(at)], at),
    elementOf(keys[wordOf(at + 1u)], at + 1u),
    elementOf(keys[wordOf(at + 2u)], at + 2u),
    elementOf(keys[wordOf(at + 3u)], at + 3u),
  );
  return select(vec4<f32>(), x, vec4(channel, channel + 1u, channel + 2u, channel + 3u) < vec4(HEAD_SIZE));
#endif
}

fn fourOfValue(row: u32, channel: u32) -> vec4<f32> {
#if VALUE_QUADS
  if (channel >= VALUE_SIZE) { return vec4<f32>(); }
  return fourOf(values[(row + channel) / 4u]);
#else
  let at = row + channel;
  // Of the channels past the end what is there is read, and replaced.
  let x = vec4(
    elementOf(values[wordOf(at)], at),
    elementOf(values[wordOf(at + 1u)], at + 1u),
    elementOf(values[wordOf(at + 2u)], at + 2u),
    elementOf(values[wordOf(at + 3u)], at + 3u),
  );
  return select(vec4<f32>(), x, vec4(channel, channel + 1u, channel + 2u, channel + 3u) < vec4(VALUE_SIZE));
#endif
}

fn stageKeys(at: u32, first: u32, chunk: u32, thread: u32) {
  for (var i = thread; i < TILE * CHUNK / 4u; i += ROWS) {
    let key = min(first + i / (CHUNK / 4u), problem.keyLength - 1u);
    staged[i] = fourOfKey(at + key * problem.keyStrides.z, chunk * CHUNK + i % (CHUNK / 4u) * 4u);
  }
}

/** Tokens past the end become zeros: their weights are zero, too, but zero times NaN is not. */
fn stageValues(at: u32, first: u32, firstChannel: u32, thread: u32) {
  for (var i = thread; i < TOKENS * VECTORS; i += ROWS) {
    let token = first + i / VECTORS;
    var x = vec4<f32>();
    if (token < problem.keyLength) {
      x = fourOfValue(at + token * problem.valueStrides.z, firstChannel + i % VECTORS * 4u);
    }
    staged[i] = x;
  }
}

@compute @workgroup_size(ROWS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let firstRow = group.x * ROWS;
  let rows = groupRows(problem);
  let row = rowOf(group.y, min(firstRow + thread, rows - 1u));
  let kvHead = group.y % problem.kvHeads;
  let firstChannel = group.z * VALUE_CHUNK;
  let queryAt = row.batch * problem.queryStrides.x + row.head * problem.queryStrides.y + row.query * problem.queryStrides.z;
  let keysAt = row.batch * problem.keyStrides.x + kvHead * problem.keyStrides.y;
  let valuesAt = row.batch * problem.valueStrides.x + kvHead * problem.valueStrides.y;

  var accumulated: array<vec4<f32>, VECTORS>;
  var sum = 0f;
  var reference = MASKED;

  let visible = visibleToAny(firstRow, ROWS);
  for (var first = visible.x / TILE * TILE; first < visible.y; first += TILE) {
    // Spelt out: an array without an initial value keeps that of the last iteration in some implementations.
    var scores = array<f32, TILE>();
    for (var chunk = 0u; chunk < CHUNKS; chunk++) {
      var q = array<vec4<f32>, CHUNK / 4u>();
#unroll i CHUNK / 4u
      q[i] = fourOfQuery(queryAt, chunk * CHUNK + 4u * i) * problem.fold;
#end
      workgroupBarrier();
      stageKeys(keysAt, first, chunk, thread);
      workgroupBarrier();
#unroll key TILE
#unroll i CHUNK / 4u
      scores[key] += dot(q[i], staged[key * (CHUNK / 4u) + i]);
#end
#end
    }

    var largest = MASKED;
    var worst = 0u;
#unroll key TILE
    scores[key] = adjusted(scores[key], row, first + key);
    largest = max(largest, scores[key]);
    worst = max(worst, bitcast<u32>(scores[key]) & 0x7fffffffu);
#end
    if (worst >= 0x7f800000u) { reference = notANumber(); }
    if (!isNaN(reference) && largest > reference) {
      let factor = select(exp2(reference - largest), 0f, reference == MASKED);
      sum *= factor;
#unroll i VECTORS
      accumulated[i] *= factor;
#end
      reference = largest;
    }
#unroll key TILE
    scores[key] = select(exp2(scores[key] - reference), 0f, scores[key] == MASKED);
    sum += scores[key];
#end
    for (var part = 0u; part < TILE / TOKENS; part++) {
      workgroupBarrier();
      stageValues(valuesAt, first + part * TOKENS, firstChannel, thread);
      workgroupBarrier();
#use addStaged
    }
  }

#use writeRow
}
