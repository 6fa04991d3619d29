// Packed keys of a prompt to the cache. An invocation has a block of a key.

@group(0) @binding(0) var<uniform> problem: Problem;
@group(0) @binding(1) var<storage, read> packed: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> keys: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read_write> keyScales: array<u32>;
@group(0) @binding(4) var<uniform> cache: Cache;

fn codesOf(low: u32, high: u32) -> u32 {
  let a = unpack4xI8(low);
  let b = unpack4xI8(high);
  var word = 0u;
  for (var i = 0u; i < 4u; i++) { word |= (codeOf(a[i]) << (8u * i)) | (codeOf(b[i]) << (8u * i + 4u)); }
  return word;
}

@compute @workgroup_size(32)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) token: u32) {
  let panel = group.x;
  let row = (group.y * problem.keyRows + panel * 32u + token) * ROW_VECTORS;
  let at = group.y * cache.panels + panel;
  var scales = 0u;
  for (var block = 0u; block < BLOCKS; block++) {
    let a = packed[row + 2u * block];
    let b = packed[row + 2u * block + 1u];
    keys[(at * BLOCKS + block) * 32u + token] =
      vec4(codesOf(a.x, a.y), codesOf(a.z, a.w), codesOf(b.x, b.y), codesOf(b.z, b.w));
    let scale = packed[row + BLOCKS * 2u][block];
    // Scales of integers are half those of elements.
    let exponent = select(min((scale >> 23u) + 1u, 254u), 255u, scale > 0x7f800000u);
    scales |= exponent << (8u * block);
  }
  keyScales[at * 32u + token] = scales;
}
