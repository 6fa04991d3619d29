// New tokens' keys and values into the cache; of one token its query too, quantised, for the decode kernel. A workgroup has
// the new tokens of a head in one panel, an invocation a channel. Values go to the tail; where they fill a panel they are
// quantised. With ONE there is one new token, for which less code has to be fetched.
//
// Queries become integers by words, [group of SERVED heads][HEAD_SIZE / 4 words, then BLOCKS scales], 4 bytes for each of
// the heads.
//
// Workgroup memory: 8 bytes an invocation, and 16.

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

var<workgroup> magnitudes: array<vec4<u32>, HEAD_SIZE / 4u>;
var<workgroup> bytes: array<u32, HEAD_SIZE>;
var<workgroup> scales: array<u32, BLOCKS>;

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

/** Where the channel of a token that is being appended is. */
fn addedAt(head: u32, token: u32, channel: u32) -> u32 {
  return head / cache.kvHeads * cache.addedBatch + head % cache.kvHeads * cache.addedHead
    + (token + cache.added - cache.length) * cache.addedToken + channel;
}

@compute @workgroup_size(HEAD_SIZE)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) channel: u32) {
  let keyHeads = cache.batch * cache.kvHeads;
  if (group.x >= keyHeads) {
    quantiseQuery(group.x - keyHeads, channel);
    return;
  }
#if ONE
  appendPanel(group.x, (cache.length - 1u) / 32u, channel);
#else
  let first = (cache.length - cache.added) / 32u;
  let last = (cache.length - 1u) / 32u;
  appendPanel(group.x, first + group.y, channel);
  // The first panel takes values from the tail that the last one overwrites.
  if (group.y == 0u && last > first) { appendPanel(group.x, last, channel); }
#endif
}

/** Those of the new tokens that are in a panel. */
fn appendPanel(head: u32, panel: u32, channel: u32) {
#if ONE
  let begin = cache.length - 1u;
  let end = cache.length;
  appendKey(head, begin, channel);
#else
  let begin = max(cache.length - cache.added, panel * 32u);
  let end = min(cache.length, panel * 32u + 32u);
  for (var token = begin; token < end; token++) { appendKey(head, token, channel); }
#endif
  if (end == panel * 32u + 32u) {
    quantisePanel(head, panel, begin, channel);
    return;
  }
  for (var token = begin; token < end; token++) {
    tail[(head * 32u + token % 32u) * HEAD_SIZE + channel] = addedValue(head, token, channel);
  }
}

fn appendKey(head: u32, token: u32, channel: u32) {
  let panel = head * cache.panels + token / 32u;
  let element = addedAt(head, token, channel);
  let x = rotated(elementOf(key[wordOf(element)], element), channel);
  let largest = largestOfBlock(x, channel);
  let exponent = scaleExponent(largest);
  bytes[channel] = codeOf(elementInteger(x * inversePower(exponent)));
  if (channel % 32u == 0u) { scales[channel / 32u] = scaleCode(exponent, largest); }
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
}

/** The values of a full panel, those before `begin` from the tail. */
fn quantisePanel(head: u32, panel: u32, begin: u32, channel: u32) {
  // All loads come first, so that they wait together.
  var x: array<f32, 32>;
#unroll i 32u
  x[i] = tail[(head * 32u + i) * HEAD_SIZE + channel];
#end
#if ONE
  x[31] = addedValue(head, begin, channel);
#else
#unroll i 32u
  if (panel * 32u + i >= begin) { x[i] = addedValue(head, panel * 32u + i, channel); }
#end
#endif
  var largest = 0u;
#unroll i 32u
  largest = max(largest, bitcast<u32>(x[i]) & 0x7fffffffu);
#end
  let exponent = scaleExponent(largest);
  let inverse = inversePower(exponent);
  var words: vec4<u32>;
#unroll i 32u
  words[i / 8u] |= codeOf(elementInteger(x[i] * inverse)) << (8u * (i % 4u) + 4u * (i / 4u % 2u));
#end
  values[(head * cache.panels + panel) * HEAD_SIZE + channel] = words;
  // What reads the key's codes is done.
  workgroupBarrier();
  bytes[channel] = scaleCode(exponent, largest);
  workgroupBarrier();
  if (channel < HEAD_SIZE / 4u) {
    var word = 0u;
    for (var i = 0u; i < 4u; i++) { word |= bytes[4u * channel + i] << (8u * i); }
    valueScales[(head * cache.panels + panel) * (HEAD_SIZE / 4u) + channel] = word;
  }
}

fn addedValue(head: u32, token: u32, channel: u32) -> f32 {
  let element = addedAt(head, token, channel);
  return elementOf(value[wordOf(element)], element);
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
