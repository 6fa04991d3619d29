// Rows of quantised numbers to float16 under one scale for ALIGNED_ROWS of them, for matrix units. The largest magnitude
// comes to lie from 2^8 to 2^9: multiples of its 2^-32 are exact, which elements of E4M3 are in blocks whose scales are up to
// 2^-15 of the largest. What is finer is lost to rounding.
//
// Invocations: one for each 16 numbers. Workgroup memory: 4 bytes an invocation.

@group(0) @binding(0) var<uniform> problem: Problem;
@group(0) @binding(1) var<storage, read> quantised: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> rows: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read_write> scales: array<f32>;
#if KEYS
// For each head, 1 where one scale cannot serve.
@group(0) @binding(4) var<storage, read_write> unsuited: array<u32>;
#endif

const PARTS = HEAD_BLOCKS * 2u;
const THREADS = PARTS * GROUP_ROWS;
// Invocations whose rows share a scale.
const ALIGNED = PARTS * ALIGNED_ROWS;

var<workgroup> tops: array<u32, THREADS>;

fn halves(x: vec4<f32>, y: vec4<f32>) -> vec4<u32> {
  return vec4(pack2x16float(x.xy), pack2x16float(x.zw), pack2x16float(y.xy), pack2x16float(y.zw));
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) index: u32) {
  let part = index % PARTS;
#if KEYS
  let length = problem.keyRows;
#else
  let length = problem.queryLength;
#endif
  let token = group.x * GROUP_ROWS + index / PARTS;
  let row = group.y * length + min(token, length - 1u);
  let at = (row * PARTS + part) * 4u;
  var x: array<vec4<f32>, 4>;
  var largest = vec4<u32>();
  for (var i = 0u; i < 4u; i++) {
    x[i] = quantised[at + i];
    largest = max(largest, bitcast<vec4<u32>>(x[i]) & vec4(0x7fffffffu));
  }
  tops[index] = max(max(largest.x, largest.y), max(largest.z, largest.w));
  let first = index / ALIGNED * ALIGNED;
  for (var step = ALIGNED / 2u; step > 0u; step /= 2u) {
    workgroupBarrier();
    if (index - first < step) { tops[index] = max(tops[index], tops[index + step]); }
  }
  workgroupBarrier();
  let top = tops[first];
  if (token >= length) { return; }
  // Of 0 and what is too small to be divided: any scale.
  let exponent = max(top >> 23u, 9u) - 8u;
  let inverse = bitcast<f32>((254u - exponent) << 23u);
  rows[row * PARTS * 2u + part * 2u] = halves(x[0] * inverse, x[1] * inverse);
  rows[row * PARTS * 2u + part * 2u + 1u] = halves(x[2] * inverse, x[3] * inverse);
  if (index == first) {
    scales[(group.y * length + token) / ALIGNED_ROWS] = select(bitcast<f32>(exponent << 23u), bitcast<f32>(0x7fc00000u | top), top >= 0x7f800000u);
#if KEYS
    if (top >= 0x7f800000u) { unsuited[group.y] = 1u; }
#endif
  }
}
