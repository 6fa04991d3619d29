// Attention of one query on a cache in MXFP4, first of two passes: each workgroup has 256 keys of a key/value head and
// up to SERVED query heads that share it.
//
// An invocation first has a key: its scores for all heads. Weights are 2^(score - maximum of the panel) in 127 steps, exact
// otherwise. Then it has channels of some panels: their products with the weights of all heads. Values are loaded
// before the scores are computed. No exchange but through workgroup memory:
//
// Workgroup memory, bytes: queries 16 * (HEAD_SIZE / 4 + BLOCKS), scores and sums 64 * HEAD_SIZE or 4096, the rest 2.5 KiB; 11 KiB
// at 128 channels.

@group(0) @binding(0) var<uniform> cache: Cache;
@group(0) @binding(1) var<storage, read> queries: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> keys: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> keyScales: array<u32>;
@group(0) @binding(4) var<storage, read> values: array<vec4<u32>>;
@group(0) @binding(5) var<storage, read> valueScales: array<u32>;
@group(0) @binding(6) var<storage, read> tail: array<f32>;
// [key/value head, group][chunk][HEAD_SIZE], a vector over the heads; then maxima and sums, [key/value head, group][chunk][2].
@group(0) @binding(7) var<storage, read_write> partial: array<vec4<f32>>;
#if BIAS
@group(0) @binding(8) var<storage, read> bias: array<Word>;
#endif

const KEYS = 256u;
const PANELS = 8u;
const WORDS = HEAD_SIZE / 4u;
// Channels of an invocation, 64 apart.
const CHANNELS = HEAD_SIZE / 64u;
const MASKED = -3.4e38f;
const STEPS_OF_WEIGHT = 127f;
#if BIAS
// As in rows.wgsl.
const LOWEST_SCORE = -3.0e38f;
const LOG2E = 1.4426950408889634f;
#endif

var<workgroup> query: array<vec4<u32>, WORDS + BLOCKS>;
var<workgroup> exchanged: array<vec4<f32>, EXCHANGED>;
var<workgroup> tops: array<vec4<f32>, 64>;
var<workgroup> panelTops: array<vec4<f32>, PANELS>;
var<workgroup> codes: array<array<u32, 4>, 64>;
var<workgroup> weights: array<array<vec4<u32>, 2>, 32>;
var<workgroup> sums: array<vec4<f32>, PANELS>;

fn dots(sum: vec4<i32>, bytes: u32, q: vec4<u32>) -> vec4<i32> {
  return sum + vec4(dot4I8Packed(bytes, q.x), dot4I8Packed(bytes, q.y), dot4I8Packed(bytes, q.z), dot4I8Packed(bytes, q.w));
}

@compute @workgroup_size(KEYS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let served = group.y * servedGroups(cache) + group.z;
  let firstPanel = group.x * PANELS;
  let head = group.y * cache.panels;

  let panel = thread / 32u;
  let lane = thread % 32u;
  let keysAt = head + min(firstPanel + panel, cache.panels - 1u);
#unroll b BLOCKS
  let key$b = keys[(keysAt * BLOCKS + $b) * 32u + lane];
#end
  let keyScale = keyScales[keysAt * 32u + lane];
  let firstChannel = thread % 64u;
  let firstOfPanels = thread / 64u;
#unroll p 2u
  let valuesAt$p = head + min(firstPanel + firstOfPanels + 4u * $p, cache.panels - 1u);
#unroll c CHANNELS
  let value$p_$c = values[valuesAt$p * HEAD_SIZE + firstChannel + 64u * $c];
  let valueScale$p_$c = valueScales[valuesAt$p * (HEAD_SIZE / 4u) + (firstChannel + 64u * $c) / 4u];
#end
#end
  // Of the last, unfinished panel, whose values are floats, an invocation has 8 tokens.
  let hasTail = cache.length % 32u > 0u && cache.length / 32u / PANELS == group.x;
  let firstOfTail = firstOfPanels * 8u;
#unroll i 8u
#unroll c CHANNELS
  var tail$i_$c = 0f;
#end
#end
  if (hasTail) {
#unroll i 8u
    {
      // No branch, so that all loads wait together. Rows past the end hold older values.
      let row = (group.y * 32u + firstOfTail + $i) * HEAD_SIZE + firstChannel;
      let filled = firstOfTail + $i < cache.length % 32u;
#unroll c CHANNELS
      tail$i_$c = select(0f, tail[row + 64u * $c], filled);
#end
    }
#end
  }
  if (thread < WORDS + BLOCKS) { query[thread] = queries[served * (WORDS + BLOCKS) + thread]; }
  workgroupBarrier();

  var scores = vec4<f32>();
#unroll b BLOCKS
  {
    var sum = vec4(0x4B400000i);
#unroll w 4u
    {
      let elements = elementsOf(key$b[$w]);
      sum = dots(sum, elements.x, query[$b * 8u + 2u * $w]);
      sum = dots(sum, elements.y, query[$b * 8u + 2u * $w + 1u]);
    }
#end
    let scale = scaleOf(keyScale, $b);
    scores = fma((bitcast<vec4<f32>>(sum) - 12582912f) * scale, bitcast<vec4<f32>>(query[WORDS + $b]), scores);
  }
#end
  let token = (firstPanel + panel) * 32u + lane;
#if BIAS
  {
    let sharers = cache.heads / cache.kvHeads;
    // Keys past the end and heads that are not there read what is there; nothing comes of it.
    let first = group.y / cache.kvHeads * cache.biasBatch + token * cache.biasKey;
    var added: vec4<f32>;
    for (var h = 0u; h < SERVED; h++) {
      let element = first + (group.y % cache.kvHeads * sharers + group.z * SERVED + h) * cache.biasHead;
      added[h] = elementOf(bias[wordOf(element)], element);
    }
    let sum = scores + added * LOG2E;
    let isNaN = (bitcast<vec4<u32>>(sum) & vec4(0x7fffffffu)) > vec4(0x7f800000u);
    scores = select(max(sum, vec4(LOWEST_SCORE)), sum, isNaN);
    scores = select(scores, vec4(MASKED), bitcast<vec4<u32>>(added) == vec4(0xff800000u));
  }
#endif
  let visible = token < cache.length && token + cache.windowLeft >= cache.length - 1u;
  scores = select(vec4(MASKED), scores, visible);

  exchanged[thread] = scores;
  workgroupBarrier();
  if (thread < 64u) {
    tops[thread] = max(
      max(exchanged[4u * thread], exchanged[4u * thread + 1u]),
      max(exchanged[4u * thread + 2u], exchanged[4u * thread + 3u]),
    );
  }
  workgroupBarrier();
  var top = tops[panel * 8u];
  for (var i = 1u; i < 8u; i++) { top = max(top, tops[panel * 8u + i]); }
  let code = vec4<u32>(round(select(exp2(scores - top), vec4<f32>(), scores == vec4(MASKED)) * STEPS_OF_WEIGHT));
  codes[thread / 4u][thread % 4u] = code.x | (code.y << 8u) | (code.z << 16u) | (code.w << 24u);
  if (lane == 0u) { panelTops[panel] = top; }
  workgroupBarrier();
  {
    // Word `lane % 8` of head `lane / 8` of the panel: the codes of 4 tokens.
    let shift = 8u * (lane / 8u);
    let quad = panel * 8u + lane % 8u;
    let word = ((codes[quad][0] >> shift) & 255u) | (((codes[quad][1] >> shift) & 255u) << 8u)
      | (((codes[quad][2] >> shift) & 255u) << 16u) | (((codes[quad][3] >> shift) & 255u) << 24u);
    weights[panel * 4u + lane / 8u][lane % 8u / 4u][lane % 4u] = word;
  }
  var largest = panelTops[0];
  for (var i = 1u; i < PANELS; i++) { largest = max(largest, panelTops[i]); }
  workgroupBarrier();

#unroll c CHANNELS
  var sum$c = vec4<f32>();
#end
#unroll p 2u
  {
    let at = firstOfPanels + 4u * $p;
    let factor = select(exp2(panelTops[at] - largest), vec4<f32>(), panelTops[at] == vec4(MASKED)) * (1f / STEPS_OF_WEIGHT);
    if (firstChannel == 0u) {
      var total: vec4<u32>;
      for (var h = 0u; h < 4u; h++) {
        for (var i = 0u; i < 8u; i++) { total[h] += dot4U8Packed(weights[at * 4u + h][i / 4u][i % 4u], 0x01010101u); }
      }
      sums[at] = vec4<f32>(total) * factor;
    }
    if ((firstPanel + at) * 32u + 32u <= cache.length) {
#unroll c CHANNELS
      {
        var dot = vec4<i32>();
#unroll w 4u
        {
          let elements = elementsOf(value$p_$c[$w]);
          dot += vec4(
            dot4I8Packed(elements.x, weights[at * 4u][$w / 2u][2u * $w % 4u]) + dot4I8Packed(elements.y, weights[at * 4u][$w / 2u][2u * $w % 4u + 1u]),
            dot4I8Packed(elements.x, weights[at * 4u + 1u][$w / 2u][2u * $w % 4u]) + dot4I8Packed(elements.y, weights[at * 4u + 1u][$w / 2u][2u * $w % 4u + 1u]),
            dot4I8Packed(elements.x, weights[at * 4u + 2u][$w / 2u][2u * $w % 4u]) + dot4I8Packed(elements.y, weights[at * 4u + 2u][$w / 2u][2u * $w % 4u + 1u]),
            dot4I8Packed(elements.x, weights[at * 4u + 3u][$w / 2u][2u * $w % 4u]) + dot4I8Packed(elements.y, weights[at * 4u + 3u][$w / 2u][2u * $w % 4u + 1u]),
          );
        }
#end
        sum$c = fma(vec4<f32>(dot) * scaleOf(valueScale$p_$c, firstChannel % 4u), factor, sum$c);
      }
#end
    }
  }
#end
  if (hasTail) {
    let at = cache.length / 32u - firstPanel;
    let factor = exp2(panelTops[at] - largest) * (1f / STEPS_OF_WEIGHT);
#unroll i 8u
    {
      let word = codes[at * 8u + firstOfTail / 4u + $i / 4u][$i % 4u];
      let weight = vec4<f32>(vec4(word, word >> 8u, word >> 16u, word >> 24u) & vec4(255u)) * factor;
#unroll c CHANNELS
      sum$c = fma(weight, vec4(tail$i_$c), sum$c);
#end
    }
#end
  }
#unroll c CHANNELS
  exchanged[firstOfPanels * HEAD_SIZE + firstChannel + 64u * $c] = sum$c;
#end
  workgroupBarrier();
  let at = served * cache.chunks + group.x;
  if (thread < HEAD_SIZE) {
    partial[at * HEAD_SIZE + thread] =
      exchanged[thread] + exchanged[HEAD_SIZE + thread] + exchanged[2u * HEAD_SIZE + thread] + exchanged[3u * HEAD_SIZE + thread];
  }
  if (thread == 0u) {
    var total = sums[0];
    for (var i = 1u; i < PANELS; i++) { total += sums[i]; }
    let maxima = cache.batch * cache.kvHeads * servedGroups(cache) * cache.chunks * HEAD_SIZE;
    partial[maxima + 2u * at] = largest;
    partial[maxima + 2u * at + 1u] = total;
  }
}
