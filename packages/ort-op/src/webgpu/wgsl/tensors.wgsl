// Elements of the caller's tensors: float32, or with HALVES float16, two in a word, so that no device needs `shader-f16` for
// them. Kernels compute in float32. A half that is read is exact, infinities and NaN included.

#if HALVES
alias Word = u32;
alias Quad = vec2<u32>;
#else
alias Word = f32;
alias Quad = vec4<f32>;
#endif

/** Where in an array of words an element is. */
fn wordOf(element: u32) -> u32 {
#if HALVES
  return element / 2u;
#else
  return element;
#endif
}

/** An element, of its word. */
fn elementOf(word: Word, element: u32) -> f32 {
#if HALVES
  return unpack2x16float(word)[element % 2u];
#else
  return word;
#endif
}

fn fourOf(quad: Quad) -> vec4<f32> {
#if HALVES
  return vec4(unpack2x16float(quad.x), unpack2x16float(quad.y));
#else
  return quad;
#endif
}

fn quadOf(x: vec4<f32>) -> Quad {
#if HALVES
  return vec2(halfOf(x.x) | (halfOf(x.y) << 16u), halfOf(x.z) | (halfOf(x.w) << 16u));
#else
  return x;
#endif
}

#if HALVES
/**
 * Bits of x as float16, rounded to nearest, ties to even: pack2x16float may round otherwise, and says nothing about overflow.
 * What is finite stays so, as the largest half at most; infinities and NaN stay what they are.
 */
fn halfOf(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  let sign = (bits >> 16u) & 0x8000u;
  let magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) { return sign | 0x7e00u; }
  if (magnitude == 0x7f800000u) { return sign | 0x7c00u; }
  // Half way from the largest half to the next power of two.
  if (magnitude >= 0x477ff000u) { return sign | 0x7bffu; }
  // Small halves are multiples of 2^-24; adding 0.5 puts that unit at the last place.
  if (magnitude < 0x38800000u) { return sign | (bitcast<u32>(abs(x) + 0.5f) - 0x3f000000u); }
  return sign | ((magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13u) & 1u)) >> 13u);
}
#endif
