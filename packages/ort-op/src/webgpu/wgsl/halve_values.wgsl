// Quantised values to float16 under one scale for each channel, blocks of 32 tokens together, with the tokens in the order in
// which attend_matrix.wgsl writes its weights: 0 2 1 3 of each four, fours 0 2 4 6 1 3 5 7.
//
// An invocation has a channel of one block.

@group(0) @binding(0) var<uniform> problem: Problem;
@group(0) @binding(1) var<storage, read> quantised: array<f32>;
@group(0) @binding(2) var<storage, read> units: array<f32>;
@group(0) @binding(3) var<storage, read_write> values: array<vec4<u32>>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let channel = id.x;
  if (channel >= VALUE_CHANNELS) { return; }
  let line = id.z * problem.valueBlocks + id.y;
  let unit = units[id.z * VALUE_CHANNELS + channel];
  // A power of two, so that its inverse is exact.
  let inverse = select(1f / unit, 0f, unit == 0f);
  var words: array<u32, 16>;
  for (var i = 0u; i < 8u; i++) {
    let four = i % 4u * 2u + i / 4u;
    let at = (line * 32u + four * 4u) * VALUE_CHANNELS + channel;
    let x = quantised[at] * inverse;
    let y = quantised[at + VALUE_CHANNELS] * inverse;
    let z = quantised[at + 2u * VALUE_CHANNELS] * inverse;
    let w = quantised[at + 3u * VALUE_CHANNELS] * inverse;
    words[2u * i] = pack2x16float(vec2(x, z));
    words[2u * i + 1u] = pack2x16float(vec2(y, w));
  }
  for (var i = 0u; i < 4u; i++) {
    values[(line * VALUE_CHANNELS + channel) * 4u + i] =
      vec4(words[4u * i], words[4u * i + 1u], words[4u * i + 2u], words[4u * i + 3u]);
  }
}
