// Query or key rows to MX blocks along the head: fold, Hadamard rotation, quantisation. A row becomes ROW_VECTORS times 16
// bytes: 2 for the integers of each block, then an f32 scale for each. Elements of E4M3 are no integers: with FLOATS a row
// becomes the numbers that its blocks stand for, as float32.
//
// An invocation has 8 elements of a row; ROW_THREADS of them a row, GROUP_ROWS rows a workgroup. Workgroup memory: 36 bytes
// an invocation for exchanging elements, 4 for the largest magnitudes; at most 10 KiB.

@group(0) @binding(0) var<uniform> problem: Problem;
#if QUADS
@group(0) @binding(1) var<storage, read> rows: array<Quad>;
#else
@group(0) @binding(1) var<storage, read> rows: array<Word>;
#endif
#if FLOATS
@group(0) @binding(2) var<storage, read_write> quantised: array<vec4<f32>>;
#else
@group(0) @binding(2) var<storage, read_write> packed: array<vec2<u32>>;
#endif

// Elements are 9 apart for every 8, so that they lie in different banks.
var<workgroup> elements: array<f32, THREADS * 9u>;
var<workgroup> tops: array<u32, THREADS>;

/** One step of the transform: sums and differences of elements whose indices differ in one bit. */
fn butterfly(x: ptr<function, array<f32, 8>>, bit: u32) {
  for (var i = 0u; i < 8u; i++) {
    if ((i & bit) == 0u) {
      let a = (*x)[i];
      let b = (*x)[i | bit];
      (*x)[i] = a + b;
      (*x)[i | bit] = a - b;
    }
  }
}

fn place(element: u32) -> u32 {
  return element + (element >> 3u);
}

#if HADAMARD
/**
 * The Walsh-Hadamard transform of 2^HADAMARD_BITS elements, three index bits at a time; the first three are those of the
 * 8 elements that an invocation has. Steps and roundings are those of core's hadamardRows.
 */
fn rotate(x: ptr<function, array<f32, 8>>, first: u32, thread: u32) {
  butterfly(x, 1u);
  butterfly(x, 2u);
  butterfly(x, 4u);
  for (var i = 0u; i < 8u; i++) { elements[place(first + thread * 8u + i)] = (*x)[i]; }
  for (var done = 3u; done < HADAMARD_BITS; done += 3u) {
    let shift = min(done, HADAMARD_BITS - 3u);
    let base = first + ((thread >> shift) << (shift + 3u)) + (thread & ((1u << shift) - 1u));
    workgroupBarrier();
    for (var i = 0u; i < 8u; i++) { (*x)[i] = elements[place(base + (i << shift))]; }
    if (done == shift) { butterfly(x, 1u); }
    if (done <= shift + 1u) { butterfly(x, 2u); }
    butterfly(x, 4u);
    // An invocation writes the elements that it has read, and no other.
    for (var i = 0u; i < 8u; i++) { elements[place(base + (i << shift))] = (*x)[i]; }
  }
  workgroupBarrier();
  for (var i = 0u; i < 8u; i++) { (*x)[i] = elements[place(first + thread * 8u + i)] * HADAMARD_NORM; }
}
#endif

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) index: u32) {
  let thread = index % ROW_THREADS;
  let rowOfGroup = index / ROW_THREADS;
  let token = group.x * GROUP_ROWS + rowOfGroup;
#if KEYS
  let heads = problem.kvHeads;
  let length = problem.keyLength;
  let lengthOfPacked = problem.keyRows;
  let strides = problem.keyStrides;
  let factor = 1f;
#else
  let heads = problem.heads;
  let length = problem.queryLength;
  let lengthOfPacked = length;
  let strides = problem.queryStrides;
  let factor = problem.fold;
#endif
  let start = group.y / heads * strides.x + group.y % heads * strides.y + token * strides.z;
  var x: array<f32, 8>;
#if QUADS
  let channel = thread * 8u;
  for (var i = 0u; i < 2u; i++) {
    let inside = token < length && channel + 4u * i < HEAD_SIZE;
    let four = fourOf(rows[select(0u, (start + channel) / 4u + i, inside)]);
    let quad = select(vec4<f32>(), four * factor, inside);
    x[4u * i] = quad.x;
    x[4u * i + 1u] = quad.y;
    x[4u * i + 2u] = quad.z;
    x[4u * i + 3u] = quad.w;
  }
#else
  for (var i = 0u; i < 8u; i++) {
    let channel = thread * 8u + i;
    let inside = token < length && channel < HEAD_SIZE;
    let at = select(0u, start + channel, inside);
    x[i] = select(0f, elementOf(rows[wordOf(at)], at) * factor, inside);
  }
#endif
#if HADAMARD
  rotate(&x, rowOfGroup * ROW_THREADS * 8u, thread);
#endif
  var largest = 0u;
  for (var i = 0u; i < 8u; i++) { largest = max(largest, bitcast<u32>(x[i]) & 0x7fffffffu); }
  tops[index] = largest;
  workgroupBarrier();
  let block = index & ~3u;
  largest = max(max(tops[block], tops[block + 1u]), max(tops[block + 2u], tops[block + 3u]));
  let exponent = scaleExponent(largest);
  let inverse = inversePower(exponent);
#if FLOATS
  if (token >= lengthOfPacked) { return; }
  let unit = bitcast<f32>(integerScale(exponent, largest));
  let at = ((group.y * lengthOfPacked + token) * ROW_THREADS + thread) * 2u;
  for (var i = 0u; i < 2u; i++) {
    quantised[at + i] = unit * vec4(
      element(x[4u * i] * inverse),
      element(x[4u * i + 1u] * inverse),
      element(x[4u * i + 2u] * inverse),
      element(x[4u * i + 3u] * inverse),
    );
  }
#else
  var n: array<i32, 8>;
  for (var i = 0u; i < 8u; i++) { n[i] = elementInteger(x[i] * inverse); }
  if (token >= lengthOfPacked) { return; }
  let row = (group.y * lengthOfPacked + token) * (ROW_VECTORS * 2u);
  packed[row + thread] = vec2(
    pack4xI8(vec4(n[0], n[1], n[2], n[3])),
    pack4xI8(vec4(n[4], n[5], n[6], n[7])),
  );
  if (thread % 8u == 0u) {
    let scale = integerScale(exponent, largest);
    var next = 0u;
    if (thread + 4u < ROW_THREADS) {
      let after = block + 4u;
      let top = max(max(tops[after], tops[after + 1u]), max(tops[after + 2u], tops[after + 3u]));
      next = integerScale(scaleExponent(top), top);
    }
    packed[row + ROW_THREADS + thread / 8u] = vec2(scale, next);
  }
#endif
}
