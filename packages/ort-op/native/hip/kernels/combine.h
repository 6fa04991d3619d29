// Adds what the splits of the keys found. A thread has a channel of a row.
#pragma once

namespace mxattn::hip::kernels {

MXATTN_KERNEL(combine, kCombineThreads, Combine) {
  int row = groupX(), head = groupY();
  long long index = static_cast<long long>(head) * a.rows + row;
  const float* sums = at<const float>(a.partialSums) + index * a.splits * 2;
  float reference = -infinity();
  for (int s = 0; s < a.splits; s++) {
    float other = sums[2 * s];
    reference = isNaN(other) || isNaN(reference) ? notANumber() : maximum(reference, other);
  }
  float sum = 0;
  for (int s = 0; s < a.splits; s++) {
    if (sums[2 * s] > -infinity()) sum = fma(sums[2 * s + 1], exp2(sums[2 * s] - reference), sum);
  }
  Row facts = rowOf(a.masks, head, row);
  float factor = normaliser(reference, withSink(reference, sum, a.masks, facts.head));
  for (int c = threadIndex(); c < a.valueSize; c += kCombineThreads) {
    float total = 0;
    for (int s = 0; s < a.splits; s++) {
      if (!(sums[2 * s] > -infinity())) continue;
      total = fma(at<const float>(a.partial)[(index * a.splits + s) * a.valueSize + c], exp2(sums[2 * s] - reference), total);
    }
    at<float>(a.out)[index * a.valueSize + c] = total * factor;
  }
}

}  // namespace mxattn::hip::kernels
