// Writes `output`, an array of Written, four channels of a row at a time. The kernel declares it, and VALUE_SIZE, the length
// of a row; VALUE_QUADS says that this is a multiple of 4, so that each row begins with a quad.

#if VALUE_QUADS
alias Written = Quad;
#else
#if HALVES
// A word may belong to two rows, which different invocations write.
alias Written = atomic<u32>;
#else
alias Written = f32;
#endif
#endif

/** Channels from a multiple of 4 on, of the row that begins at an element. Those past its end are left out. */
fn writeFour(row: u32, channel: u32, x: vec4<f32>) {
#if VALUE_QUADS
  if (channel < VALUE_SIZE) { output[(row + channel) / 4u] = quadOf(x); }
#else
  for (var i = 0u; i < 4u; i++) {
    if (channel + i < VALUE_SIZE) { writeOne(row + channel + i, x[i]); }
  }
#endif
}

#if !VALUE_QUADS
fn writeOne(element: u32, x: f32) {
#if HALVES
  // The other half of the word stays, whatever is written to it in between.
  let shift = element % 2u * 16u;
  atomicAnd(&output[element / 2u], ~(0xffffu << shift));
  atomicOr(&output[element / 2u], halfOf(x) << shift);
#else
  output[element] = x;
#endif
}
#endif
