// The Hadamard rotation of the keys of a cache, which is its own inverse, by HEAD_SIZE invocations.
//
// Workgroup memory: 8 bytes an invocation.

// Two buffers, so that one barrier separates writing from reading.
var<workgroup> elements: array<array<f32, HEAD_SIZE>, 2>;

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
