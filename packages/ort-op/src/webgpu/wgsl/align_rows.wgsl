// Packed rows to rows of plain int8 under one scale for ALIGNED_ROWS of them: matrix units take nothing else. The unit is
// that of the largest scale, less the spare bits of int8 below the element's last place; integers of blocks with smaller
// scales are shifted to it, and lose to rounding what does not fit.
//
// With FLOATS, quantised numbers to float16: the largest magnitude comes to lie from 2^8 to 2^9. Multiples of its 2^-32 are
// exact then, which elements of E4M3 are in blocks whose scales are up to 2^-15 of the largest.
//
// Invocations: one for each 16 elements. Workgroup memory: 4 bytes an invocation.

@group(0) @binding(0) var<uniform> problem: Problem;
#if FLOATS
@group(0) @binding(1) var<storage, read> quantised: array<vec4<f32>>;
#else
@group(0) @binding(1) var<storage, read> packed: array<vec4<u32>>;
#endif
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

#if FLOATS
fn halves(x: vec4<f32>, y: vec4<f32>) -> vec4<u32> {
  return vec4(pack2x16float(x.xy), pack2x16float(x.zw), pack2x16float(y.xy), pack2x16float(y.zw));
}
#else
fn shifted(word: u32, factor: f32) -> u32 {
  return pack4xI8(vec4<i32>(round(vec4<f32>(unpack4xI8(word)) * factor)));
}
#endif

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
#if FLOATS
  var x: array<vec4<f32>, 4>;
  var largest = vec4<u32>();
  for (var i = 0u; i < 4u; i++) {
    x[i] = quantised[(row * VECTORS + vector) * 4u + i];
    largest = max(largest, bitcast<vec4<u32>>(x[i]) & vec4(0x7fffffffu));
  }
  tops[index] = max(max(largest.x, largest.y), max(largest.z, largest.w));
#else
  let block = vector / 2u;
  let scale = bitcast<u32>(packed[row * ROW_VECTORS + VECTORS + block / 4u][block % 4u]);
  // Scales are powers of two: their bits are in order.
  tops[index] = scale;
#endif
  let first = index / ALIGNED * ALIGNED;
  for (var step = ALIGNED / 2u; step > 0u; step /= 2u) {
    workgroupBarrier();
    if (index - first < step) { tops[index] = max(tops[index], tops[index + step]); }
  }
  workgroupBarrier();
  let top = tops[first];
  if (token >= length) { return; }
#if FLOATS
  // Of 0 and what is too small to be divided: any scale.
  let exponent = max(top >> 23u, 9u) - 8u;
  let inverse = bitcast<f32>((254u - exponent) << 23u);
  let at = (row * VECTORS + vector) * 2u;
  rows[at] = halves(x[0] * inverse, x[1] * inverse);
  rows[at + 1u] = halves(x[2] * inverse, x[3] * inverse);
  let unit = bitcast<f32>(select(exponent << 23u, 0x7fc00000u | top, top >= 0x7f800000u));
#else
  let unit = bitcast<f32>(top) / f32(1u << SPARE_BITS);
  let factor = select(bitcast<f32>(scale) / unit, 0f, top == 0u);
  let codes = packed[row * ROW_VECTORS + vector];
  rows[row * VECTORS + vector] =
    vec4(shifted(codes.x, factor), shifted(codes.y, factor), shifted(codes.z, factor), shifted(codes.w, factor));
#endif
  if (index == first) {
    scales[(group.y * length + token) / ALIGNED_ROWS] = unit;
#if KEYS
    if (top >= 0x7f800000u) { unsuited[group.y] = 1u; }
#endif
  }
}
