// Values to MX blocks along the tokens. A block of 32 tokens of a channel becomes 32 bytes of integers and an f32 scale:
// codes [head][block][VALUE_CHANNELS][2] in 16 bytes each, scales [head][block][VALUE_CHANNELS]. Elements of E4M3 are no
// integers: with FLOATS they become the numbers that they stand for, as float32 [head][token][VALUE_CHANNELS].
//
// An invocation has a channel of one block.

@group(0) @binding(0) var<uniform> problem: Problem;
@group(0) @binding(1) var<storage, read> values: array<Word>;
#if FLOATS
@group(0) @binding(2) var<storage, read_write> quantised: array<f32>;
#else
@group(0) @binding(2) var<storage, read_write> codes: array<vec4<u32>>;
#endif
@group(0) @binding(3) var<storage, read_write> scales: array<u32>;
#if MARKS
// For each head, whether matrix units do not suit it: nothing speaks against it yet.
@group(0) @binding(4) var<storage, read_write> unsuited: array<u32>;
#endif

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let channel = id.x;
  let block = id.y;
  if (channel >= VALUE_CHANNELS) { return; }
#if MARKS
  if (channel == 0u && block == 0u) { unsuited[id.z] = 0u; }
#endif
  let strides = problem.valueStrides;
  let start = id.z / problem.kvHeads * strides.x + id.z % problem.kvHeads * strides.y + channel;
  var x: array<f32, 32>;
  var largest = 0u;
  for (var i = 0u; i < 32u; i++) {
    let token = block * 32u + i;
    let inside = token < problem.keyLength && channel < VALUE_SIZE;
    let at = select(0u, start + token * strides.z, inside);
    x[i] = select(0f, elementOf(values[wordOf(at)], at), inside);
    largest = max(largest, bitcast<u32>(x[i]) & 0x7fffffffu);
  }
  let exponent = scaleExponent(largest);
  let inverse = inversePower(exponent);
  let scale = integerScale(exponent, largest);
  let line = id.z * problem.valueBlocks + block;
#if FLOATS
  for (var i = 0u; i < 32u; i++) {
    quantised[(line * 32u + i) * VALUE_CHANNELS + channel] = element(x[i] * inverse) * bitcast<f32>(scale);
  }
#else
  var words: array<u32, 8>;
  for (var i = 0u; i < 8u; i++) {
    words[i] = pack4xI8(vec4(
      elementInteger(x[4u * i] * inverse),
      elementInteger(x[4u * i + 1u] * inverse),
      elementInteger(x[4u * i + 2u] * inverse),
      elementInteger(x[4u * i + 3u] * inverse),
    ));
  }
  let at = line * VALUE_CHANNELS + channel;
  codes[2u * at] = vec4(words[0], words[1], words[2], words[3]);
  codes[2u * at + 1u] = vec4(words[4], words[5], words[6], words[7]);
#endif
  scales[line * VALUE_CHANNELS + channel] = scale;
}
