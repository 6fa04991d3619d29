// A key/value cache in MXFP4: 4.25 bits an element. For each head, panels of 32 tokens:
//   keys    [panel][block of channels][32 tokens], 16 bytes each: the 32 codes of a block,
//   values  [panel][channel], 16 bytes each: the 32 codes of a block of tokens,
//   scales  E8M0 bytes: of keys [panel][32 tokens][4], of values [panel][channel].
// Values of a panel that is not full yet are float32 in a tail, [32][channel] for each head: their blocks are not known.
//
// A word has 8 codes. Its low nibbles, by bytes, are elements 0 to 3, its high nibbles 4 to 7, so that one mask makes
// four bytes of them.

struct Cache {
  batch: u32,
  heads: u32,
  kvHeads: u32,
  // Panels that each head has room for.
  panels: u32,
  // Tokens, with those that are being appended.
  length: u32,
  // Keys before the newest that a query sees.
  windowLeft: u32,
  // log2(e) times the scale of the scores.
  fold: f32,
  // Workgroups that share the keys.
  chunks: u32,
  // The newest tokens, which are being appended, and elements from one batch, head and token of theirs to the next.
  added: u32,
  addedBatch: u32,
  addedHead: u32,
  addedToken: u32,
  // Elements from one batch, head and key of the bias to the next.
  biasBatch: u32,
  biasHead: u32,
  biasKey: u32,
}

const BLOCKS = HEAD_SIZE / 32u;
// Query heads that one invocation serves, and how many groups of them a key/value head has.
const SERVED = 4u;

fn servedGroups(c: Cache) -> u32 {
  return (c.heads / c.kvHeads + SERVED - 1u) / SERVED;
}

/** E2M1 code of an element times 2 (0 1 2 3 4 6 8 12, negative too). Zero has no sign. */
fn codeOf(n: i32) -> u32 {
  let magnitude = u32(abs(n));
  let code = select(min(4u + (magnitude - 4u) / 2u, 7u), magnitude, magnitude < 4u);
  return select(code, code | 8u, n < 0);
}

/** Elements times 2 of 8 codes, as 4 bytes from the low nibbles and 4 from the high ones. */
fn elementsOf(word: u32) -> vec2<u32> {
  // The bits of 0 1 2 3 4 6 8 12 by those of the code, of all nibbles at once.
  let b0 = word & 0x11111111u;
  let b1 = (word >> 1u) & 0x11111111u;
  let b2 = (word >> 2u) & 0x11111111u;
  let eight = b2 & b1;
  let four = b2 & (b0 | ~b1);
  let two = (b2 & ~b1 & b0) | (~b2 & b1);
  let one = ~b2 & b0;
  let magnitudes = (eight << 3u) | (four << 2u) | (two << 1u) | one;
  let signs = (word >> 3u) & 0x11111111u;
  return vec2(
    negated(magnitudes & 0x0f0f0f0fu, signs & 0x01010101u),
    negated((magnitudes >> 4u) & 0x0f0f0f0fu, (signs >> 4u) & 0x01010101u),
  );
}

/** Bytes negated where `signs` has a 1; zeros have none. */
fn negated(bytes: u32, signs: u32) -> u32 {
  return (bytes ^ (signs * 255u)) + signs;
}

/** The E8M0 scale of a byte of a word, halved, as elements come doubled. */
fn scaleOf(word: u32, byte: u32) -> f32 {
  let e = (word >> (8u * byte)) & 255u;
  return bitcast<f32>(select(max(e, 1u) - 1u, 511u, e == 255u) << 23u);
}
