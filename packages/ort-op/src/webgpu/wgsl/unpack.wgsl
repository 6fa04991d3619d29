// Keys and values of a cache as elements of tensors, [key/value head][token][channel] with room for whole panels. A workgroup
// has a panel of a head, an invocation a channel.
//
// Workgroup memory: 8 bytes an invocation, 16 with HALVES.

@group(0) @binding(0) var<uniform> cache: Cache;
@group(0) @binding(1) var<storage, read> keys: array<u32>;
@group(0) @binding(2) var<storage, read> keyScales: array<u32>;
@group(0) @binding(3) var<storage, read> values: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read> valueScales: array<u32>;
@group(0) @binding(5) var<storage, read> tail: array<f32>;
@group(0) @binding(6) var<storage, read_write> key: array<Word>;
@group(0) @binding(7) var<storage, read_write> value: array<Word>;

// Rotating back rounds, and so do halves. A trifle less keeps the largest element of a block where a larger scale is not
// needed, should the key be quantised again.
#if HALVES
const SHRINK = 0.9990234f;

var<workgroup> row: array<vec2<f32>, HEAD_SIZE>;
#else
const SHRINK = 0.9999962f;
#endif

/** Element `i` of the 8 codes of a word, times 2. */
fn elementAt(word: u32, i: u32) -> f32 {
  let elements = elementsOf(word);
  return f32(unpack4xI8(select(elements.x, elements.y, i >= 4u))[i % 4u]);
}

@compute @workgroup_size(HEAD_SIZE)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) channel: u32,
) {
  let panel = group.y * cache.panels + group.x;
  let codes = values[panel * HEAD_SIZE + channel];
  let valueScale = scaleOf(valueScales[panel * (HEAD_SIZE / 4u) + channel / 4u], channel % 4u);
  let end = min(cache.length - group.x * 32u, 32u);
  for (var token = 0u; token < end; token++) {
    let word = keys[((panel * BLOCKS + channel / 32u) * 32u + token) * 4u + channel % 32u / 8u];
    let x = elementAt(word, channel % 8u) * scaleOf(keyScales[panel * 32u + token], channel / 32u);
    let at = ((group.y * groups.x + group.x) * 32u + token) * HEAD_SIZE + channel;
    // The unfinished panel is in the tail.
    let packed = elementAt(codes[token / 8u], token % 8u) * valueScale;
    let both = vec2(
      rotated(x, channel) * SHRINK,
      select(tail[(group.y * 32u + token) * HEAD_SIZE + channel], packed, end == 32u),
    );
#if HALVES
    row[channel] = both;
    workgroupBarrier();
    if (channel % 2u == 0u) {
      let next = row[channel + 1u];
      key[at / 2u] = halfOf(both.x) | (halfOf(next.x) << 16u);
      value[at / 2u] = halfOf(both.y) | (halfOf(next.y) << 16u);
    }
#else
    key[at] = both.x;
    value[at] = both.y;
#endif
    // The next token's are written where these may still be read.
    workgroupBarrier();
  }
}
