// Packed rows to rows of plain int8 under one scale for ALIGNED_ROWS of them: matrix units take nothing else. The unit is
// that of the largest scale, less the spare bits of int8 below the element's last place; integers of blocks with smaller
// scales are shifted to it, and lose to rounding what does not fit.
//
// Invocations: one for each 16 integers. Workgroup memory: 4 bytes an invocation.

@group(0) @binding(0) var<uniform> problem: Problem;
@group(0) @binding(1) var<storage, read> packed: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> rows: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read_write> scales: array<f32>;
#if KEYS
// For each head, 1 where one scale cannot serve.
@group(0) @binding(4) var<storage, read_write> unsuited: array<u32>;
#endif

const VECTORS = HEAD_BLOCKS * 2u;
const THREADS = VECTORS * GROUP_ROWS;
// Invocations whose rows share a scale.
const ALIGNED = VECTORS * ALIGNED_ROWS;

var<workgroup> tops: array<u32, THREADS>;

fn shifted(word: u32, factor: f32) -> u32 {
  return pack4xI8(vec4<i32>(round(vec4<f32>(unpack4xI8(word)) * factor)));
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) index: u32) {
  let vector = index % VECTORS;
#if KEYS
  let length = problem.keyRows;
#else
  let length = problem.queryLength;
#endif
  let token = group.x * GROUP_ROWS + index / VECTORS;
  let row = group.y * length + min(token, length - 1u);
  let block = vector / 2u;
  let scale = bitcast<u32>(packed[row * ROW_VECTORS + VECTORS + block / 4u][block % 4u]);
  // Scales are powers of two: their bits are in order.
  tops[index] = scale;
  let first = index / ALIGNED * ALIGNED;
  for (var step = ALIGNED / 2u; step > 0u; step /= 2u) {
    workgroupBarrier();
    if (index - first < step) { tops[index] = max(tops[index], tops[index + step]); }
  }
  workgroupBarrier();
  let top = tops[first];
  if (token >= length) { return; }
  let unit = bitcast<f32>(top) / f32(1u << SPARE_BITS);
  let factor = select(bitcast<f32>(scale) / unit, 0f, top == 0u);
  let codes = packed[row * ROW_VECTORS + vector];
  rows[row * VECTORS + vector] =
    vec4(shifted(codes.x, factor), shifted(codes.y, factor), shifted(codes.z, factor), shifted(codes.w, factor));
  if (index == first) {
    scales[(group.y * length + token) / ALIGNED_ROWS] = unit;
#if KEYS
    if (top >= 0x7f800000u) { unsuited[group.y] = 1u; }
#endif
  }
}
