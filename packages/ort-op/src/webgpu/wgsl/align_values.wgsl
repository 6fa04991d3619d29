// Packed values to bytes under one scale for each channel, biased by 128 so that they are unsigned as the weights are, with
// the tokens of a block in the order in which attend_matrix.wgsl writes its weights: words 0 2 4 6 1 3 5 7.
//
// With FLOATS, quantised numbers to float16, and of each four tokens 0 2 1 3.
//
// An invocation has a channel of one block.

@group(0) @binding(0) var<uniform> problem: Problem;
#if FLOATS
@group(0) @binding(1) var<storage, read> quantised: array<f32>;
#else
@group(0) @binding(1) var<storage, read> codes: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> scales: array<f32>;
#endif
@group(0) @binding(3) var<storage, read> units: array<f32>;
@group(0) @binding(4) var<storage, read_write> values: array<vec4<u32>>;

#if !FLOATS
fn biased(word: u32, factor: f32) -> u32 {
  return pack4xI8(vec4<i32>(round(vec4<f32>(unpack4xI8(word)) * factor))) ^ 0x80808080u;
}
#endif

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let channel = id.x;
  if (channel >= VALUE_CHANNELS) { return; }
  let at = (id.z * problem.valueBlocks + id.y) * VALUE_CHANNELS + channel;
  let unit = units[id.z * VALUE_CHANNELS + channel];
#if FLOATS
  // A power of two, so that its inverse is exact.
  let inverse = select(1f / unit, 0f, unit == 0f);
  var words: array<u32, 16>;
  for (var i = 0u; i < 8u; i++) {
    let four = i % 4u * 2u + i / 4u;
    let first = ((id.z * problem.valueBlocks + id.y) * 32u + four * 4u) * VALUE_CHANNELS + channel;
    let x = quantised[first] * inverse;
    let y = quantised[first + VALUE_CHANNELS] * inverse;
    let z = quantised[first + 2u * VALUE_CHANNELS] * inverse;
    let w = quantised[first + 3u * VALUE_CHANNELS] * inverse;
    words[2u * i] = pack2x16float(vec2(x, z));
    words[2u * i + 1u] = pack2x16float(vec2(y, w));
  }
  for (var i = 0u; i < 4u; i++) {
    values[4u * at + i] = vec4(words[4u * i], words[4u * i + 1u], words[4u * i + 2u], words[4u * i + 3u]);
  }
#else
  let factor = select(scales[at] / unit, 0f, unit == 0f);
  let a = codes[2u * at];
  let b = codes[2u * at + 1u];
  values[2u * at] = vec4(biased(a.x, factor), biased(a.z, factor), biased(b.x, factor), biased(b.z, factor));
  values[2u * at + 1u] = vec4(biased(a.y, factor), biased(a.w, factor), biased(b.y, factor), biased(b.w, factor));
#endif
}
