// Which keys a row of scores sees, and what becomes of its scores before the softmax: soft cap, bias, masks. Scores are in
// log2 units.
#pragma once

namespace mxattn::hip::kernels {

constexpr float kLog2e = 1.44269504f;
constexpr float kLargest = 3.402823466e38f;

struct KeyRange {
  int begin;
  int end;
};

MXATTN_INLINE KeyRange visibleKeys(const Masks& masks, int query) {
  int position = query + masks.keyLength - masks.queryLength;
  int begin = larger(position - masks.windowLeft, 0);
  return {begin, larger(smaller(position + masks.windowRight + 1, masks.keyLength), begin)};
}

// Keys that any, and that each, of the rows [first, last] of a group may see.
struct SharedRange {
  KeyRange any;
  KeyRange all;
};

MXATTN_INLINE SharedRange visibleKeys(const Masks& masks, int first, int last) {
  bool oneHead = first / masks.queryLength == last / masks.queryLength;
  KeyRange low = visibleKeys(masks, oneHead ? first % masks.queryLength : 0);
  KeyRange high = visibleKeys(masks, oneHead ? last % masks.queryLength : masks.queryLength - 1);
  return {{low.begin, high.end}, {high.begin, low.end}};
}

struct Row {
  KeyRange visible;
  const float* bias;
  int head;
  // The same bias for every key.
  bool flatBias;
};

MXATTN_INLINE Row rowOf(const Masks& masks, int kvHeadOfBatch, int index) {
  int batch = kvHeadOfBatch / masks.kvHeads, query = index % masks.queryLength;
  Row row;
  row.head = kvHeadOfBatch % masks.kvHeads * (masks.heads / masks.kvHeads) + index / masks.queryLength;
  row.visible = visibleKeys(masks, query);
  row.bias = at<const float>(masks.bias) + batch * masks.biasBatchStride + row.head * masks.biasHeadStride +
             query * masks.biasQueryStride;
  row.flatBias = masks.biasKeyStride == 0;
  return row;
}

// softcap * tanh(score / softcap), without the overflow that large arguments may have and with few errors near 0.
MXATTN_INLINE float capped(float score, float softcap) {
  float x = maximum(minimum(score / softcap, 15.f), -15.f);
  float large = 1.f - 2.f / (1.f + exp2(x * (2.f * kLog2e)));
  float square = x * x;
  float small = x * (1.f + square * (-1.f / 3 + square * (2.f / 15 - square * (17.f / 315 - square * (62.f / 2835)))));
  return softcap * (square < 0.04f ? small : large);
}

// kAdjusted: there is a soft cap or a bias. Score i is that of key firstKey + keyOf(i), where keyOf(i) is a constant. One step after the other for all scores: what each
// needs in registers is gone before the next.
template <bool kAdjusted, int kCount, typename KeyOf>
MXATTN_INLINE void maskScores(float (&score)[kCount], const Masks& masks, const Row& row, int firstKey,
                                const KeyOf& keyOf) {
  if (kAdjusted && masks.softcap > 0) {
    MXATTN_UNROLL
    for (int i = 0; i < kCount; i++) {
      score[i] = isNaN(score[i]) ? score[i] : capped(score[i], masks.softcap);
      finish(score[i]);
    }
  }
  if (kAdjusted && masks.bias && row.flatBias) {
    // The same for every key changes no softmax, but where a sink stands beside the keys; adding it costs digits.
    float bias = *row.bias, added = masks.sinks || isNaN(bias) ? bias * kLog2e : 0.f;
    MXATTN_UNROLL
    for (int i = 0; i < kCount; i++) score[i] = bias == -infinity() ? bias : score[i] + added;
  } else if (kAdjusted && masks.bias) {
    const float* from = row.bias + firstKey;
    int last = masks.keyLength - 1 - firstKey;
    MXATTN_UNROLL
    for (int i = 0; i < kCount; i++) {
      if (i % 4 == 0) begin(last);
      // Past the last key what is read does not matter, but there must be something.
      float bias = from[smaller(keyOf(i), last)];
      // A finite bias stays finite, so that a row whose keys all carry the lowest float attends to all of them alike.
      float scaled = isNaN(bias) ? bias : maximum(bias * kLog2e, -kLargest);
      // Minus infinity masks whatever the score is.
      score[i] = bias == -infinity() ? bias : score[i] + scaled;
      finish(score[i]);
    }
  }
  int first = row.visible.begin - firstKey;
  auto count = static_cast<unsigned>(row.visible.end - row.visible.begin);
  MXATTN_UNROLL
  for (int i = 0; i < kCount; i++) {
    if (i % 4 == 0) begin(first);
    score[i] = static_cast<unsigned>(keyOf(i) - first) < count ? score[i] : -infinity();
    finish(score[i]);
  }
}

}  // namespace mxattn::hip::kernels
