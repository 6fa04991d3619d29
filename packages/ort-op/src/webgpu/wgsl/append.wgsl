// One token's key and value into the cache, and its query, quantised, for the decode kernel. A workgroup has a head, an
// invocation a channel. The value goes to the tail; the token that fills a panel quantises it.
//
// Queries become integers by words, [group of SERVED heads][HEAD_SIZE / 4 words, then BLOCKS scales], 4 bytes for each of
// the heads.
//
// Workgroup memory: 16 bytes an invocation, and 16.

@group(0) @binding(0) var<uniform> cache: Cache;
@group(0) @binding(1) var<storage, read> query: array<Word>;
@group(0) @binding(2) var<storage, read> key: array<Word>;
@group(0) @binding(3) var<storage, read> value: array<Word>;
@group(0) @binding(4) var<storage, read_write> queries: array<u32>;
@group(0) @binding(5) var<storage, read_write> keys: array<u32>;
@group(0) @binding(6) var<storage, read_write> keyScales: array<u32>;
@group(0) @binding(7) var<storage, read_write> values: array<vec4<u32>>;
@group(0) @binding(8) var<storage, read_write> valueScales: array<u32>;
@group(0) @binding(9) var<storage, read_write> tail: array<f32>;

// Two buffers, so that one barrier separates writing from reading.
var<workgroup> elements: array<array<f32, HEAD_SIZE>, 2>;
var<workgroup> magnitudes: array<vec4<u32>, HEAD_SIZE / 4u>;
var<workgroup> bytes: array<u32, HEAD_SIZE>;
var<workgroup> scales: array<u32, BLOCKS>;

/**
 * The Walsh-Hadamard transform of a row, one channel an invocation, three index bits at a time: each invocation adds 8
 * elements in the order of the butterflies.
 */
fn rotated(x: f32, channel: u32) -> f32 {
  var y = x;
#unroll round HADAMARD_ROUNDS
  {
    const shift = 3u * round;
    elements[round % 2u][channel] = y;
    workgroupBarrier();
    let base = channel & ~(7u << shift);
    var sums: array<f32, 8>;
#unroll i 8u
    sums[i] = elements[round % 2u][min(base | (i << shift), HEAD_SIZE - 1u)];
#end
#unroll bit 3u
    if (shift + bit < HADAMARD_BITS) {
      let negative = ((channel >> (shift + bit)) & 1u) != 0u;
#unroll i 4u
      if (i < (4u >> bit)) {
        sums[i] = select(sums[2u * i] + sums[2u * i + 1u], sums[2u * i] - sums[2u * i + 1u], negative);
      }
#end
    }
#end
    y = sums[0];
  }
#end
  return y * HADAMARD_NORM;
}

/** Bits of the largest magnitude in the block of a channel. */
fn largestOfBlock(x: f32, channel: u32) -> u32 {
  magnitudes[channel / 4u][channel % 4u] = bitcast<u32>(x) & 0x7fffffffu;
  workgroupBarrier();
  var top = magnitudes[channel / 32u * 8u];
  for (var i = 1u; i < 8u; i++) { top = max(top, magnitudes[channel / 32u * 8u + i]); }
  return max(max(top.x, top.y), max(top.z, top.w));
}

/** E8M0 code of a block's scale. */
fn scaleCode(exponent: u32, largest: u32) -> u32 {
  return select(exponent, 255u, largest >= 0x7f800000u);
}

@compute @workgroup_size(HEAD_SIZE)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) channel: u32) {
  let keyHeads = cache.batch * cache.kvHeads;
  if (group.x >= keyHeads) {
    quantiseQuery(group.x - keyHeads, channel);
    return;
  }
  let head = group.x;
  let token = cache.length - 1u;
  let panel = head * cache.panels + token / 32u;
  let element = head * HEAD_SIZE + channel;
  let x = rotated(elementOf(key[wordOf(element)], element), channel);
  let largest = largestOfBlock(x, channel);
  let exponent = scaleExponent(largest);
  bytes[channel] = codeOf(elementInteger(x * inversePower(exponent)));
  if (channel % 32u == 0u) { scales[channel / 32u] = scaleCode(exponent, largest); }
  let v = elementOf(value[wordOf(element)], element);
  tail[(head * 32u + token % 32u) * HEAD_SIZE + channel] = v;
  workgroupBarrier();
  if (channel < HEAD_SIZE / 8u) {
    var word = 0u;
    for (var i = 0u; i < 4u; i++) {
      word |= (bytes[channel * 8u + i] << (8u * i)) | (bytes[channel * 8u + 4u + i] << (8u * i + 4u));
    }
    keys[((panel * BLOCKS + channel / 4u) * 32u + token % 32u) * 4u + channel % 4u] = word;
  }
  if (channel == 0u) {
    var word = 0u;
    for (var i = 0u; i < BLOCKS; i++) { word |= scales[i] << (8u * i); }
    keyScales[panel * 32u + token % 32u] = word;
  }
  if (token % 32u == 31u) { quantisePanel(head, panel, channel, v); }
}

/** The values of a full panel. The newest is not read back from the tail. */
fn quantisePanel(head: u32, panel: u32, channel: u32, newest: f32) {
  var largest = bitcast<u32>(newest) & 0x7fffffffu;
  for (var i = 0u; i < 31u; i++) {
    largest = max(largest, bitcast<u32>(tail[(head * 32u + i) * HEAD_SIZE + channel]) & 0x7fffffffu);
  }
  let exponent = scaleExponent(largest);
  let inverse = inversePower(exponent);
  var words: vec4<u32>;
  for (var i = 0u; i < 32u; i++) {
    let x = select(tail[(head * 32u + i) * HEAD_SIZE + channel], newest, i == 31u);
    words[i / 8u] |= codeOf(elementInteger(x * inverse)) << (8u * (i % 4u) + 4u * (i / 4u % 2u));
  }
  values[panel * HEAD_SIZE + channel] = words;
  // What reads the key's codes is done.
  workgroupBarrier();
  bytes[channel] = scaleCode(exponent, largest);
  workgroupBarrier();
  if (channel < HEAD_SIZE / 4u) {
    var word = 0u;
    for (var i = 0u; i < 4u; i++) { word |= bytes[4u * channel + i] << (8u * i); }
    valueScales[panel * (HEAD_SIZE / 4u) + channel] = word;
  }
}

fn quantiseQuery(head: u32, channel: u32) {
  let element = head * HEAD_SIZE + channel;
  let x = rotated(elementOf(query[wordOf(element)], element) * cache.fold, channel);
  let largest = largestOfBlock(x, channel);
  let exponent = scaleExponent(largest);
  bytes[channel] = bitcast<u32>(elementInteger(x * inversePower(exponent))) & 255u;
  workgroupBarrier();
  let sharers = cache.heads / cache.kvHeads;
  let keyHead = head / sharers;
  let member = head % sharers;
  let words = HEAD_SIZE / 4u;
  let at = (keyHead * servedGroups(cache) + member / SERVED) * (words + BLOCKS);
  if (channel < words) {
    var word = 0u;
    for (var i = 0u; i < 4u; i++) { word |= bytes[4u * channel + i] << (8u * i); }
    queries[(at + channel) * SERVED + member % SERVED] = word;
  }
  if (channel % 32u == 0u) {
    queries[(at + words + channel / 32u) * SERVED + member % SERVED] = integerScale(exponent, largest);
  }
}
