// Packed values of a prompt to the cache, and those of its last, unfinished panel, as they are, to the tail. An invocation has
// 4 channels of a panel.

@group(0) @binding(0) var<uniform> problem: Problem;
@group(0) @binding(1) var<storage, read> codes: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> scales: array<u32>;
@group(0) @binding(3) var<storage, read> rows: array<Word>;
@group(0) @binding(4) var<storage, read_write> values: array<vec4<u32>>;
@group(0) @binding(5) var<storage, read_write> valueScales: array<u32>;
@group(0) @binding(6) var<storage, read_write> tail: array<f32>;
@group(0) @binding(7) var<uniform> cache: Cache;

fn codesOf(low: u32, high: u32) -> u32 {
  let a = unpack4xI8(low);
  let b = unpack4xI8(high);
  var word = 0u;
  for (var i = 0u; i < 4u; i++) { word |= (codeOf(a[i]) << (8u * i)) | (codeOf(b[i]) << (8u * i + 4u)); }
  return word;
}

@compute @workgroup_size(HEAD_SIZE / 4u)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) quad: u32) {
  let panel = group.x;
  let at = group.y * cache.panels + panel;
  var packedScales = 0u;
  for (var i = 0u; i < 4u; i++) {
    let channel = quad * 4u + i;
    let source = (group.y * problem.valueBlocks + panel) * HEAD_SIZE + channel;
    let a = codes[2u * source];
    let b = codes[2u * source + 1u];
    values[at * HEAD_SIZE + channel] =
      vec4(codesOf(a.x, a.y), codesOf(a.z, a.w), codesOf(b.x, b.y), codesOf(b.z, b.w));
    let scale = scales[source];
    packedScales |= select(min((scale >> 23u) + 1u, 254u), 255u, scale > 0x7f800000u) << (8u * i);
  }
  valueScales[at * (HEAD_SIZE / 4u) + quad] = packedScales;
  if (panel != problem.keyLength / 32u) { return; }
  let strides = problem.valueStrides;
  let start = group.y / problem.kvHeads * strides.x + group.y % problem.kvHeads * strides.y;
  for (var token = 0u; token < problem.keyLength % 32u; token++) {
    for (var i = 0u; i < 4u; i++) {
      let row = start + (panel * 32u + token) * strides.z + quad * 4u + i;
      tail[(group.y * 32u + token) * HEAD_SIZE + quad * 4u + i] = elementOf(rows[wordOf(row)], row);
    }
  }
}
